// SPDX-License-Identifier: Apache-2.0
#include "remat/report/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "remat/core/units.h"
#include "remat/report/numbers.h"
#include "remat/report/table.h"

namespace remat {
namespace {

std::string optional_bytes(const std::optional<int64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : "-";
}

template <typename T>
nlohmann::json optional_json(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

std::string method_label(const MethodReport& method) {
  if (method.chosen_strategy.empty() || method.chosen_strategy == method.method) {
    return method.method;
  }
  return fmt::format("{} ({})", method.method, method.chosen_strategy);
}

// Calls visit(name, equal) for everything that was compared.
template <typename Visit>
void visit_compared(const SameBits& same, Visit visit) {
  visit("loss", same.loss);
  if (same.gradients) visit("gradients", *same.gradients);
  if (same.parameters) visit("parameters", *same.parameters);
  if (same.optimizer_state) visit("optimizer_state", *same.optimizer_state);
  visit("buffers", same.buffers);
  visit("rng", same.rng);
}

std::string differences(const SameBits& same) {
  std::string text;
  visit_compared(same, [&](const char* what, bool equal) {
    if (!equal) text += (text.empty() ? "" : ", ") + std::string(what);
  });
  return text;
}

nlohmann::json same_bits_json(const SameBits& same) {
  nlohmann::json json = nlohmann::json::object();
  visit_compared(same, [&](const char* what, bool equal) { json[what] = equal; });
  return json;
}

std::string same_bits_cell(const SameBits& same) {
  return same.all() ? "yes" : "NO: " + differences(same);
}

nlohmann::json method_json(const MethodReport& method) {
  nlohmann::json json = {{"method", method.method},
                         {"chosen_strategy", method.chosen_strategy.empty()
                                                 ? nlohmann::json(nullptr)
                                                 : nlohmann::json(method.chosen_strategy)},
                         {"feasible", method.feasible}};
  if (!method.feasible) {
    json["fault"] = method.fault;
    return json;
  }
  json.update({{"predicted_peak_bytes", optional_json(method.predicted_peak_bytes)},
               {"measured_peak_bytes", method.measured_peak_bytes},
               {"reserved_bytes", optional_json(method.reserved_bytes)},
               {"resident_bytes", optional_json(method.resident_bytes)},
               {"outside_allocations", method.outside_allocations},
               {"recomputed_ops", method.recomputed_ops},
               {"packed_values", method.packed_values},
               {"offloaded_bytes", method.offloaded_bytes},
               {"plan_seconds", method.plan_seconds},
               {"saved_plan", method.saved_plan},
               {"step_ns", method.step_ns},
               {"time_ratio_to_eager", method.time_ratio_to_eager},
               {"bit_identical", same_bits_json(method.bit_identical)}});
  return json;
}

}  // namespace

std::string run_text(const RunReport& report) {
  const int64_t whole = report.eager_peak_bytes;
  std::string out = fmt::format("{}; {:.1f} M parameters\n", report.model,
                                static_cast<double>(report.parameters) / 1e6);
  out += fmt::format("budget {}, {} of the keep-all peak of {}; floor {} (set by {})\n",
                     format_bytes(report.budget_bytes),
                     share(report.budget_bytes, report.keep_all_peak_bytes),
                     format_bytes(report.keep_all_peak_bytes), format_bytes(report.floor_bytes),
                     report.floor_op);
  out += fmt::format("{} step{}, each method on a model of its own, interleaved; loss {:.4f} to {:.4f}\n\n",
                     report.rounds, report.rounds == 1 ? "" : "s", report.first_loss,
                     report.last_loss);
  Table table({"method", "predicted peak", "measured peak", "of plain", "reserved", "resident",
               "step", "time ratio", "same bits"});
  table.add_row({"plain LibTorch", "-", format_bytes(whole), share(whole, whole), "-",
                 optional_bytes(report.eager_resident_bytes), format_ns(report.eager_step_ns),
                 "1.000", ""});
  std::string faults;
  for (const MethodReport& method : report.methods) {
    if (!method.feasible) {
      table.add_row({method_label(method), "does not fit"});
      faults += method.fault + "\n";  // begins with the strategy, or with the budget
      continue;
    }
    table.add_row({method_label(method), optional_bytes(method.predicted_peak_bytes),
                   format_bytes(method.measured_peak_bytes),
                   share(method.measured_peak_bytes, whole), optional_bytes(method.reserved_bytes),
                   optional_bytes(method.resident_bytes), format_ns(method.step_ns),
                   fmt::format("{:.3f}", method.time_ratio_to_eager),
                   same_bits_cell(method.bit_identical)});
    if (method.outside_allocations > 0) {
      faults += fmt::format("{}: {} requests for memory were answered outside of the arena\n",
                            method.method, method.outside_allocations);
    }
  }
  out += table.text() + "\n" + faults;
  if (report.verified) {
    out += "verified: the schedules by the independent checker, one more step with poisoned frees\n";
  }
  out += fmt::format(
      "Peaks count every tensor and all scratch that LibTorch's allocator gives out, {} of it there before the "
      "step: parameters, buffers, batch. The resident set has more: scratch that kernels get elsewhere, "
      "code, thread stacks, what malloc keeps.\n",
      format_bytes(report.external_bytes));
  return out;
}

nlohmann::json run_json(const RunReport& report) {
  nlohmann::json json = method_json(report.methods.front());
  json.erase("method");
  json.update({{"strategy", report.methods.front().method},
               {"parameters", report.parameters},
               {"budget_bytes", report.budget_bytes},
               {"keep_all_peak_bytes", report.keep_all_peak_bytes},
               {"floor_bytes", report.floor_bytes},
               {"floor_op", report.floor_op},
               {"external_bytes", report.external_bytes},
               {"eager_peak_bytes", report.eager_peak_bytes},
               {"eager_resident_bytes", optional_json(report.eager_resident_bytes)},
               {"eager_step_ns", report.eager_step_ns},
               {"rounds", report.rounds},
               {"verified", report.verified},
               {"first_loss", report.first_loss},
               {"last_loss", report.last_loss}});
  if (report.methods.size() > 1) {
    nlohmann::json compared = nlohmann::json::array();
    for (size_t i = 1; i < report.methods.size(); ++i) {
      compared.push_back(method_json(report.methods[i]));
    }
    json["compared"] = std::move(compared);
  }
  return json;
}

std::string broken_promise(const RunReport& report, const MethodReport& method) {
  if (!method.feasible) return {};
  if (!method.bit_identical.all()) {
    return fmt::format("{}: {} not bit-identical to plain LibTorch's", method.method,
                       differences(method.bit_identical));
  }
  if (!method.predicted_peak_bytes) return {};
  if (method.measured_peak_bytes != *method.predicted_peak_bytes) {
    return fmt::format("{}: measured a peak of {} B, predicted {} B", method.method,
                       method.measured_peak_bytes, *method.predicted_peak_bytes);
  }
  if (method.reserved_bytes.value_or(0) > report.budget_bytes) {
    return fmt::format("{}: reserved {} B, the budget is {} B", method.method,
                       *method.reserved_bytes, report.budget_bytes);
  }
  return {};
}

}  // namespace remat
