// SPDX-License-Identifier: Apache-2.0
#include "remat/core/schedule_text.h"

#include <array>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "remat/core/error.h"
#include "remat/core/text_lines.h"

namespace remat {
namespace {

using detail::concat;
using detail::excerpt;

constexpr std::string_view kScheduleHeader = "remat-schedule 1";

// Reads names of the graph and of instances; hands out instance ids in order of first mention.
class ScheduleReader {
 public:
  explicit ScheduleReader(const Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.storage_count(); ++i) {
      const StorageId id = static_cast<StorageId>(i);
      storage_named_.emplace(graph.storage(id).name, id);
    }
    for (size_t i = 0; i < graph.op_count(); ++i) {
      const OpId id = static_cast<OpId>(i);
      if (graph.is_move(id) && graph.move(id).kind == MoveKind::read_packed) {
        for (const Value& value : graph.op(id).reads) {
          if (graph.is_form(value.storage)) reader_of_[{value.storage, graph.original(id)}] = id;
        }
        continue;
      }
      names_of(step_kind_of(graph, id)).emplace(graph.op(id).name, id);
    }
    for (size_t i = 0; i < graph.external_count; ++i) {
      instance(graph.storages[i].name);
    }
  }

  void line(const std::vector<std::string_view>& words) {
    for (size_t k = 0; k < kStepKindCount; ++k) {
      const StepKind kind = static_cast<StepKind>(k);
      if (words[0] != name(kind)) continue;
      if (kind != StepKind::free) return execution(kind, words);
      if (words.size() != 2) throw Error("expected free <instance>, two words");
      schedule_.steps.push_back(
          {.kind = StepKind::free, .op = {}, .first_operand = 0, .instance = instance(words[1])});
      return;
    }
    throw Error(concat("found ", excerpt(words[0]),
                       "; expected a line that starts with run, recompute, free, pack, unpack, offload, "
                       "prefetch or #"));
  }

  Schedule take() { return std::move(schedule_); }

 private:
  struct Lists {
    std::vector<std::string_view> reads, updates, creates, reuse;
  };

  // Ops by their names, moves of each kind by the names of the storages that they move.
  std::unordered_map<std::string_view, OpId>& names_of(StepKind kind) {
    return op_named_[static_cast<size_t>(kind == StepKind::recompute ? StepKind::run : kind)];
  }

  InstanceId instance(std::string_view text) {
    const auto known = instance_named_.find(text);
    if (known != instance_named_.end()) return known->second;
    const size_t mark = text.rfind(kCopyMark);
    int64_t copy = 0;
    if (mark != std::string_view::npos) {
      const std::string_view digits = text.substr(mark + 1);
      copy = detail::number_of(digits, "copy");
      // One name for one instance: a#0 and a#01 would be second names of a and a#1.
      if (copy == 0 || digits.front() == '0' || copy > std::numeric_limits<int32_t>::max()) {
        throw Error(concat("instance ", excerpt(text), " has an odd copy number; expected 1, 2, ..."));
      }
    }
    const auto storage = storage_named_.find(text.substr(0, mark));
    if (storage == storage_named_.end()) {
      throw Error(concat("unknown storage ", excerpt(text.substr(0, mark)),
                         "; expected a storage of the graph"));
    }
    const InstanceId id = static_cast<InstanceId>(schedule_.instances.size());
    schedule_.instances.push_back({storage->second, static_cast<int32_t>(copy), kNoInstance});
    instance_named_.emplace(text, id);
    return id;
  }

  Lists lists(const std::vector<std::string_view>& words) {
    Lists lists;
    for (size_t i = 2; i < words.size(); ++i) {
      const auto [key, text] = detail::split_at(words[i], '=', "<key>=<instances>");
      std::vector<std::string_view>* list = key == "reads"     ? &lists.reads
                                            : key == "updates" ? &lists.updates
                                            : key == "creates" ? &lists.creates
                                            : key == "reuse"   ? &lists.reuse
                                                               : nullptr;
      if (list == nullptr) {
        throw Error(concat("unknown key ", excerpt(key),
                           "; expected one of reads, updates, creates, reuse"));
      }
      if (!list->empty()) throw Error(concat("key ", excerpt(key), " is given twice"));
      *list = detail::list_of(text, key);
    }
    return lists;
  }

  void operands(const Op& op, const char* key, const std::vector<std::string_view>& names,
                size_t expected) {
    if (names.size() != expected) {
      throw Error(concat("op ", op.name, ": ", key, "= has ", names.size(), " instances; expected ",
                         expected));
    }
    for (const std::string_view name : names) schedule_.operands.push_back(instance(name));
  }

  // The op, or the move that it is if one of these reads is a packed form that it can read.
  OpId as_read(OpId id, const std::vector<std::string_view>& reads) const {
    for (const std::string_view read : reads) {
      const auto form = storage_named_.find(read.substr(0, read.rfind(kCopyMark)));
      if (form == storage_named_.end() || !graph_.is_form(form->second)) continue;
      const auto reader = reader_of_.find({form->second, id});
      if (reader != reader_of_.end()) return reader->second;
    }
    return id;
  }

  void execution(StepKind kind, const std::vector<std::string_view>& words) {
    const bool is_op = kind == StepKind::run || kind == StepKind::recompute;
    if (words.size() < 2) {
      throw Error(concat(words[0], " without ", is_op ? "an op" : "a storage", "; expected its name"));
    }
    const auto found = names_of(kind).find(words[1]);
    if (found == names_of(kind).end()) {
      throw Error(is_op ? concat("unknown op ", excerpt(words[1]), "; expected an op of the graph")
                        : concat("no ", words[0], " of ", excerpt(words[1]),
                                 "; expected a storage that the graph allows it for"));
    }
    const Lists names = lists(words);
    const OpId id = is_op ? as_read(found->second, names.reads) : found->second;
    const Op& op = graph_.op(id);
    schedule_.steps.push_back({.kind = kind,
                               .op = id,
                               .first_operand = static_cast<int32_t>(schedule_.operands.size()),
                               .instance = kNoInstance});
    operands(op, "reads", names.reads, op.reads.size());
    operands(op, "updates", names.updates, op.updates.size());
    operands(op, "creates", names.creates, op.creates.size());
    places(names.reuse, schedule_.steps.back());
  }

  // The place is the instance's, in text it stands where the instance is created. So that every
  // text has one meaning and prints as itself, only a step's own creates may take only its own
  // reads' places, and an instance that is created again (for verify to refuse) takes the same
  // place again.
  void places(const std::vector<std::string_view>& pairs, const ScheduleStep& step) {
    std::unordered_map<InstanceId, InstanceId> place;
    for (const InstanceId id : schedule_.creates(graph_, step)) place.emplace(id, kNoInstance);
    std::unordered_set<InstanceId> read;
    if (!pairs.empty()) {
      const auto ids = schedule_.reads(graph_, step);
      read.insert(ids.begin(), ids.end());
    }
    for (const std::string_view pair : pairs) {
      const auto [result, source] = detail::split_at(pair, '<', "<result>'<'<source> in reuse=");
      const auto created = place.find(instance(result));
      if (created == place.end()) {
        throw Error(concat("reuse writes ", excerpt(result),
                           ", which this step does not create; expected one of its creates="));
      }
      if (created->second != kNoInstance) {
        throw Error(concat(excerpt(result), " takes two places; expected one"));
      }
      created->second = instance(source);
      if (!read.contains(created->second)) {
        throw Error(concat("reuse takes the place of ", excerpt(source),
                           ", which this step does not read; expected one of its reads="));
      }
    }
    for (const InstanceId id : schedule_.creates(graph_, step)) {
      const InstanceId source = place.at(id);
      InstanceId& known = schedule_.instances[index(id)].in_place_of;
      if (!created_.insert(id).second && known != source) {
        throw Error(concat(excerpt(instance_name(graph_, schedule_.instances[index(id)])),
                           " is created again, in another place; expected the same reuse="));
      }
      known = source;
    }
  }

  const Graph& graph_;
  Schedule schedule_;
  // Views into the graph and into the text that is being read.
  std::unordered_map<std::string_view, StorageId> storage_named_;
  std::array<std::unordered_map<std::string_view, OpId>, kStepKindCount> op_named_;
  std::map<std::pair<StorageId, OpId>, OpId> reader_of_;  // by packed form and op: its read_packed
  std::unordered_map<std::string_view, InstanceId> instance_named_;
  std::unordered_set<InstanceId> created_;
};

void append_instances(std::string& out, const Graph& graph, const Schedule& schedule,
                      std::string_view key, std::span<const InstanceId> instances) {
  if (instances.empty()) return;
  out += " ";
  out += key;
  char separator = '=';
  for (const InstanceId id : instances) {
    out += separator;
    out += instance_name(graph, schedule.instances[index(id)]);
    separator = ',';
  }
}

void append_reuse(std::string& out, const Graph& graph, const Schedule& schedule,
                  std::span<const InstanceId> created) {
  const char* separator = " reuse=";
  for (const InstanceId id : created) {
    const Instance& instance = schedule.instances[index(id)];
    if (instance.in_place_of == kNoInstance) continue;
    out += separator + instance_name(graph, instance) + "<" +
           instance_name(graph, schedule.instances[index(instance.in_place_of)]);
    separator = ",";
  }
}

}  // namespace

std::string print_schedule(const Schedule& schedule, const Graph& graph) {
  std::string out(kScheduleHeader);
  out += "\n";
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind == StepKind::free) {
      out += "free " + instance_name(graph, schedule.instances[index(step.instance)]) + "\n";
      continue;
    }
    out += name(step.kind);
    out += " " + graph.op(step.op).name;
    append_instances(out, graph, schedule, "reads", schedule.reads(graph, step));
    append_instances(out, graph, schedule, "updates", schedule.updates(graph, step));
    append_instances(out, graph, schedule, "creates", schedule.creates(graph, step));
    append_reuse(out, graph, schedule, schedule.creates(graph, step));
    out += "\n";
  }
  return out;
}

Schedule parse_schedule(std::string_view text, const Graph& graph) {
  ScheduleReader reader(graph);
  detail::for_each_line(text, "parse_schedule", kScheduleHeader,
                        [&](const std::vector<std::string_view>& words) { reader.line(words); });
  return reader.take();
}

}  // namespace remat
