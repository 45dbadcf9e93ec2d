// SPDX-License-Identifier: Apache-2.0
#include "remat/core/plan_file.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include "remat/core/analysis/interpolate.h"
#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/text_lines.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"
#include "remat/core/verify_addresses.h"

namespace remat {
namespace {

using detail::concat;
using detail::excerpt;

constexpr std::string_view kHeader = "remat-plan 1";
constexpr std::string_view kChecksum = "checksum ";
constexpr std::string_view kVerb = "load_plan";
constexpr std::string_view kNone = "none";

// FNV-1a: every flipped bit changes it.
uint64_t checksum_of(std::string_view text) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}

std::string hexadecimal(uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

uint64_t number_of_hexadecimal(std::string_view text, std::string_view what) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number, 16);
  if (status != std::errc() || stop != end || hexadecimal(number) != text) {
    throw Error(concat(what, " is ", excerpt(text), "; expected 16 hexadecimal digits"));
  }
  return number;
}

// The text without its last line, which must be its checksum.
std::string_view checked_body(std::string_view text) {
  if (text.substr(0, text.find('\n')) != kHeader) {
    throw Error(concat("[", kVerb, "] line 1: found ", excerpt(text.substr(0, text.find('\n'))),
                       "; expected the header '", kHeader, "'"));
  }
  const size_t last = text.size() < 2 ? std::string_view::npos : text.rfind('\n', text.size() - 2);
  const std::string_view line = last == std::string_view::npos ? "" : text.substr(last + 1);
  if (!line.starts_with(kChecksum) || line.back() != '\n') {
    throw Error(concat("[", kVerb, "] the file is damaged: it ends in ", excerpt(line),
                       " and not in its checksum, so that a part of it is missing; save the plan again"));
  }
  const std::string_view body = text.substr(0, last + 1);
  const std::string_view found = line.substr(kChecksum.size(), line.size() - kChecksum.size() - 1);
  const std::string expected = hexadecimal(checksum_of(body));
  if (found != expected) {
    throw Error(concat("[", kVerb, "] the file is damaged, or was changed: its checksum is ",
                       excerpt(found), " and that of its text ", expected, "; save the plan again"));
  }
  return body;
}

// Reads line by line. Errors come out with the number of the line that was read last.
class Reader {
 public:
  explicit Reader(std::string_view body) : text_(body) {}

  PlanFile read() {
    try {
      return read_file();
    } catch (const Error& error) {
      // The parsers of graph and schedule have said their line already.
      if (error.what()[0] == '[') throw;
      detail::throw_at_line(kVerb, line_number_, error.what());
    }
  }

 private:
  bool at_end() const { return text_.empty(); }

  std::string_view peek() const { return text_.substr(0, text_.find('\n')); }

  std::string_view next() {
    ++line_number_;
    if (at_end()) throw Error("the text ends here; expected more");
    const std::string_view line = peek();
    text_.remove_prefix(line.size() + 1);
    return line;
  }

  // The words after `key` of the line that must come next.
  std::vector<std::string_view> words(std::string_view key, size_t least, size_t most) {
    const std::string_view line = next();
    std::vector<std::string_view> found = detail::words_of(line);
    if (found.empty() || found.front() != key) {
      throw Error(concat("found ", excerpt(line), "; expected a line that starts with ", key));
    }
    found.erase(found.begin());
    if (found.size() < least || found.size() > most) {
      throw Error(concat("'", key, "' is followed by ", found.size(), " words; expected ", least,
                         least == most ? "" : concat(" to ", most)));
    }
    return found;
  }
  std::string_view word(std::string_view key) { return words(key, 1, 1).front(); }
  bool comes(std::string_view key) const {
    const std::string_view line = peek();
    return line.starts_with(key) && (line.size() == key.size() || line[key.size()] == ' ');
  }

  // The lines up to one that says `end` and nothing else, behind as many empty ones as there are
  // before them in the file: so the numbers that their own parser gives to lines are right.
  std::string section(std::string_view end) {
    std::string lines(static_cast<size_t>(line_number_), '\n');
    while (peek() != end) {
      if (at_end()) throw Error(concat("the section has no end; expected a line '", end, "'"));
      lines += next();
      lines += '\n';
    }
    next();
    return lines;
  }

  PlanFile read_file() {
    next();  // the header, which has been looked at
    PlanFile file;
    file.library = word("library");
    file.libtorch = word("libtorch");
    while (!at_end()) file.courses.push_back(course());
    if (file.courses.empty()) throw Error("no course follows; expected one or more");
    return file;
  }

  SavedCourse course() {
    words("course", 0, 0);
    SavedCourse made;
    const std::string_view fingerprint = word("fingerprint");
    if (fingerprint != kNone) made.fingerprint = number_of_hexadecimal(fingerprint, "fingerprint");
    made.threads = detail::number_of(word("threads"), "number of threads");
    while (comes("input")) made.inputs.emplace_back(word("input"));
    const std::string_view budget = word("budget");
    if (budget != kNone) made.budget_bytes = detail::number_of(budget, "budget");
    made.plan.strategy = strategy();
    std::optional<std::pair<int64_t, std::string>> least;
    if (comes("floor")) {
      const std::vector<std::string_view> parts = words("floor", 2, 2);
      least.emplace(detail::number_of(parts[0], "floor"), parts[1]);
    }
    if (comes("bound")) made.plan.lower_bound_time_ns = detail::number_of(word("bound"), "bound");
    words("graph", 0, 0);
    made.graph = parse_graph(section("schedule"));
    if (least) set_floor(made, least->first, least->second);
    made.schedule = parse_schedule(section("addresses"), made.graph);
    made.plan.order = order_of(made.graph, made.schedule);
    read_addresses(made);
    words("end", 0, 0);
    check(made);
    return made;
  }

  std::string strategy() {
    const std::string_view found = word("strategy");
    if (std::ranges::none_of(strategies(), [&](const Strategy& each) { return each.name == found; })) {
      throw Error(concat("unknown strategy ", excerpt(found), "; expected one that remat plan --help lists"));
    }
    return std::string(found);
  }

  static void set_floor(SavedCourse& course, int64_t bytes, const std::string& op) {
    const auto found = std::ranges::find(course.graph.ops, op, &Op::name);
    if (found == course.graph.ops.end()) {
      throw Error(concat("the floor is set by ", excerpt(op), ", which is no op of the graph"));
    }
    course.plan.floor = Floor{bytes, static_cast<OpId>(found - course.graph.ops.begin())};
  }

  void read_addresses(SavedCourse& course) {
    const Graph& graph = course.graph;
    const Schedule& schedule = course.schedule;
    Placement placement;
    const std::vector<std::string_view> arena = words("arena", 3, 4);
    placement.arena_bytes = detail::number_of(arena[0], "size of the arena");
    if (comes("channel_bytes")) {
      placement.channel_bytes = detail::number_of(word("channel_bytes"), "bytes on the channel");
    }
    if (arena[1] != "live") {
      throw Error(concat("found ", excerpt(arena[1]), "; expected arena <bytes> live <bytes> [optimal]"));
    }
    placement.max_live_bytes = detail::number_of(arena[2], "largest load");
    if (arena.size() == 4 && arena[3] != "optimal") {
      throw Error(concat("found ", excerpt(arena[3]), "; expected 'optimal' or nothing"));
    }
    placement.optimal = arena.size() == 4;
    placement.instance_offset.assign(schedule.instances.size(), kNoAddress);
    for (size_t i = graph.external_count; i < schedule.instances.size(); ++i) {
      placement.instance_offset[i] = address("at", instance_name(graph, schedule.instances[i]));
    }
    placement.workspace_offset.assign(schedule.steps.size(), kNoAddress);
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      const ScheduleStep& step = schedule.steps[s];
      if (step.kind != StepKind::free && graph.op(step.op).workspace_bytes > 0) {
        placement.workspace_offset[s] = address("workspace", graph.op(step.op).name);
      }
    }
    course.plan.placement = std::move(placement);
  }

  int64_t address(std::string_view key, const std::string& name) {
    if (!comes(key)) {
      next();
      throw Error(concat("expected the address of ", name, ": ", key, " ", name, " <offset>"));
    }
    const std::vector<std::string_view> parts = words(key, 2, 2);
    if (parts[0] != name) {
      throw Error(concat("found the address of ", excerpt(parts[0]), "; expected that of ", name,
                         ", which the schedule has here"));
    }
    return detail::number_of(parts[1], "address");
  }

  static void check(SavedCourse& course) {
    const auto violation = verify(course.graph, course.schedule, course.budget_bytes);
    if (violation) {
      throw Error(concat("the schedule is wrong: ", name(violation->kind), " at step ",
                         violation->step, " (", violation->op, "): ", violation->reason));
    }
    if (rewrite(course.graph, course.plan.order) != course.schedule) {
      throw Error("the schedule is right, but not the one that rewrite makes of its order: a copy is "
                  "freed late or a place is not taken");
    }
    const std::string fault =
        fault_in_addresses(course.graph, course.schedule, *course.plan.placement);
    if (!fault.empty()) throw Error("the addresses are wrong: " + fault);
    const int64_t for_arena = course.budget_bytes - course.graph.external_bytes();
    if (course.plan.placement->arena_bytes > for_arena) {
      throw Error(concat("externals and the arena need more than the budget of ",
                         format_bytes(course.budget_bytes)));
    }
    const Peak peak = simulate_peak(course.graph, course.schedule);
    course.plan.feasible = true;
    course.plan.peak_bytes = peak.bytes;
    course.plan.time_ns = peak.time_ns;
  }

  std::string_view text_;
  int64_t line_number_ = 0;
};

void append_addresses(std::string& out, const SavedCourse& course) {
  const Graph& graph = course.graph;
  const Schedule& schedule = course.schedule;
  const Placement& placement = *course.plan.placement;
  out += concat("addresses\narena ", placement.arena_bytes, " live ", placement.max_live_bytes,
                placement.optimal ? " optimal\n" : "\n");
  if (placement.channel_bytes > 0) out += concat("channel_bytes ", placement.channel_bytes, "\n");
  for (size_t i = graph.external_count; i < schedule.instances.size(); ++i) {
    out += "at " + instance_name(graph, schedule.instances[i]) + " " +
           std::to_string(placement.instance_offset[i]) + "\n";
  }
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (placement.workspace_offset[s] == kNoAddress) continue;
    out += "workspace " + graph.op(schedule.steps[s].op).name + " " +
           std::to_string(placement.workspace_offset[s]) + "\n";
  }
}

void append_course(std::string& out, const SavedCourse& course) {
  REMAT_ASSERT(course.plan.placement.has_value());
  out += "course\nfingerprint ";
  out += course.fingerprint ? hexadecimal(*course.fingerprint) : std::string(kNone);
  out += concat("\nthreads ", course.threads, "\n");
  for (const std::string& input : course.inputs) out += "input " + input + "\n";
  out += "budget ";
  out += course.budget_bytes == kNoBudget ? std::string(kNone) : std::to_string(course.budget_bytes);
  out += "\nstrategy " + course.plan.strategy + "\n";
  if (const auto& least = course.plan.floor) {
    out += concat("floor ", least->bytes, " ", course.graph.op(least->op).name, "\n");
  }
  if (course.plan.lower_bound_time_ns) out += concat("bound ", *course.plan.lower_bound_time_ns, "\n");
  out += "graph\n" + print_graph(course.graph);
  out += "schedule\n" + print_schedule(course.schedule, course.graph);
  append_addresses(out, course);
  out += "end\n";
}

std::string form_text(const Graph& graph, const PackedForm& packed) {
  return concat(graph.storage(packed.storage).name, " (", packed.rule, ", ", packed.bytes, " bytes)");
}

int64_t offloadable(const Graph& graph) {
  return std::ranges::count(graph.moves, MoveKind::offload, &Move::kind);
}

// Moves are numbered, as ops are. Of the same ops and storages.
std::string difference_of_moves(const Graph& saved, const Graph& found) {
  if (saved.packed_forms.size() != found.packed_forms.size()) {
    return concat("the plan has ", saved.packed_forms.size(), " packed forms; here are ",
                  found.packed_forms.size());
  }
  for (size_t i = 0; i < saved.packed_forms.size(); ++i) {
    const PackedForm& a = saved.packed_forms[i];
    const PackedForm& b = found.packed_forms[i];
    const std::string in_plan = form_text(saved, a);
    const std::string here = form_text(found, b);
    if (in_plan != here) {
      return concat("packed form ", i, " is ", in_plan, " in the plan and ", here, " here");
    }
    if (a.readers != b.readers || a.unpack_ns.has_value() != b.unpack_ns.has_value()) {
      return concat("packed form ", i, " is ", in_plan, " in both, with other readers or without unpacking");
    }
  }
  if (saved.channel.has_value() != found.channel.has_value()) {
    return saved.channel ? "the plan has a channel; here is none" : "the plan has no channel; here is one";
  }
  if (saved.channel && saved.channel->alignment != found.channel->alignment) {
    return concat("the channel's alignment is ", saved.channel->alignment, " in the plan and ",
                  found.channel->alignment, " here");
  }
  if (offloadable(saved) != offloadable(found)) {
    return concat(offloadable(saved), " storages can be offloaded in the plan and ", offloadable(found),
                  " here");
  }
  const auto same = [](const Move& a, const Move& b) { return a.kind == b.kind && a.value == b.value; };
  return std::ranges::equal(saved.moves, found.moves, same) ? "" : "other storages can be offloaded";
}

}  // namespace

std::string_view library_version() { return REMAT_VERSION; }

std::string print_plan_file(const PlanFile& file) {
  std::string out = concat(kHeader, "\nlibrary ", file.library, "\nlibtorch ", file.libtorch, "\n");
  for (const SavedCourse& course : file.courses) append_course(out, course);
  return with_checksum(std::move(out));
}

PlanFile parse_plan_file(std::string_view text) { return Reader(checked_body(text)).read(); }

std::string with_checksum(std::string text) {
  const std::string sum = hexadecimal(checksum_of(text));
  return std::move(text) + std::string(kChecksum) + sum + "\n";
}

std::string graph_difference(const Graph& saved, const Graph& found) {
  if (const auto difference = program_difference(saved, found)) return *difference;
  const auto bytes = [](const std::string& of, int64_t there, int64_t here) {
    return concat(of, " has ", there, " bytes in the plan and ", here, " here");
  };
  for (size_t i = 0; i < saved.storages.size(); ++i) {
    const Storage& storage = saved.storages[i];
    const int64_t here = found.storages[i].bytes;
    if (storage.bytes != here) return bytes(storage.name, storage.bytes, here);
  }
  for (size_t i = 0; i < saved.ops.size(); ++i) {
    const Op& op = saved.ops[i];
    const int64_t here = found.ops[i].workspace_bytes;
    if (op.workspace_bytes != here) {
      return bytes("the workspace of " + op.name, op.workspace_bytes, here);
    }
  }
  return difference_of_moves(saved, found);
}

}  // namespace remat
