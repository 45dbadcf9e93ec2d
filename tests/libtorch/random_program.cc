// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/random_program.h"

#include <algorithm>
#include <sstream>

#include "tests/libtorch/random_statements.h"

namespace remat::testing {
namespace {

// Draws numbers that do not depend on the standard library's distributions.
class Dice {
 public:
  explicit Dice(uint64_t seed) : words_(seed) { words_.discard(8); }
  int below(int limit) { return static_cast<int>(words_() % static_cast<uint64_t>(limit)); }
  bool one_in(int chances) { return below(chances) == 0; }

 private:
  std::mt19937_64 words_;
};

int kind_of_role(Role role, Dice& dice) {
  const auto kinds = statement_kinds();
  int total = 0;
  for (const StatementKind& kind : kinds) {
    total += kind.role == role ? kind.weight : 0;
  }
  int drawn = dice.below(total);
  size_t i = 0;
  while (kinds[i].role != role || (drawn -= kinds[i].weight) >= 0) {
    ++i;
  }
  return static_cast<int>(i);
}

Statement random_statement(Role role, Dice& dice) {
  Statement statement{.kind = kind_of_role(role, dice),
                      .a = dice.one_in(role == Role::loss ? 6 : 3) ? dice.below(kRegisters) : 0,
                      .b = dice.below(kRegisters),
                      .choice = dice.below(840),
                      .number = 0.25 * (1 + dice.below(4))};
  if (dice.one_in(4)) {
    statement.change = static_cast<Change>(dice.below(kChanges));
  }
  if (dice.one_in(role == Role::forward ? 10 : 14)) {
    statement.when = static_cast<When>(dice.below(kWhens));
  }
  return statement;
}

using Words = std::function<std::string(const std::string& name)>;

// Replaces every {name} of a text by what `words` say for it. Names may contain names.
std::string filled(const std::string& text, const Words& words) {
  std::string line;
  std::vector<std::string> names;  // that are open, the innermost last
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_name = i + 1 < text.size() && std::string("abcny").find(text[i + 1]) < 5;
    if (text[i] == '{' && is_name) {
      names.emplace_back();
    } else if (text[i] == '}' && !names.empty()) {
      const std::string word = words(names.back());
      names.pop_back();
      (names.empty() ? line : names.back()) += word;
    } else {
      (names.empty() ? line : names.back()) += text[i];
    }
  }
  return line;
}

// "c%8": the choice modulo 8. "c|add|mul": the one of these that is chosen.
std::string chosen(const std::string& name, int choice) {
  std::istringstream in(name.substr(2));
  if (name[1] == '%') {
    return std::to_string(choice % std::stoi(in.str()));
  }
  std::vector<std::string> parts;
  for (std::string part; std::getline(in, part, '|');) {
    parts.push_back(part);
  }
  if (name.back() == '|') {
    parts.emplace_back();
  }
  return parts[static_cast<size_t>(choice) % parts.size()];
}

const char* text_of(When when) {
  switch (when) {
    case When::always: return "";
    case When::odd_steps: return "if (step % 2 == 1) ";
    case When::from_step_3: return "if (step >= 3) ";
    case When::host_coin: return "if (host() < 0.5) ";
    case When::torch_coin: return "if (torch::rand({}).item() < 0.5) ";
    case When::positive: return "if ({a}.sum().item() > 0) ";
  }
  return "";
}

const char* text_of(Change change) {
  switch (change) {
    case Change::never: return "";
    case Change::every_step: return " * (1 + step / 10)";
    case Change::host_random: return " * (1 + host() / 10)";
    case Change::read_from_tensor: return " * (1 + tanh({a}.mean().item()) / 10)";
  }
  return "";
}

std::string text_of(const Setup& setup) {
  static constexpr const char* kOptimizerNames[] = {"by hand", "SGD with momentum", "Adam"};
  static constexpr const char* kAliasingNames[] = {
      "apart", "the first again", "the other half of the first's storage", "a view of memory",
      "a view of table"};
  static constexpr const char* kBetweenNames[] = {
      "", "draws random numbers", "scales table", "replaces table's data",
      "replaces memory by a copy of it", "drops gradients on odd steps"};
  std::ostringstream out;
  out << "# updates: " << kOptimizerNames[static_cast<int>(setup.optimizer)] << "; batches of "
      << (setup.shapes == 1 ? "4" : setup.shapes == 2 ? "4 or 6" : "3 to 6")
      << " rows, second tensor: " << kAliasingNames[static_cast<int>(setup.aliasing)] << "\n";
  if (setup.between != Between::nothing) {
    out << "# between steps the loop " << kBetweenNames[static_cast<int>(setup.between)] << "\n";
  }
  if (setup.parameter_hook) {
    out << "# table has a hook that counts and halves the gradient\n";
  }
  if (setup.keeps_results) {
    out << "# all results are kept to the end\n";
  }
  return out.str();
}

}  // namespace

bool StatementKind::makes_register() const { return std::string(text).starts_with("{y}"); }

std::span<const StatementKind> statement_kinds() {
  static const std::vector<StatementKind> all = [] {
    std::vector<StatementKind> kinds(forward_kinds().begin(), forward_kinds().end());
    kinds.insert(kinds.end(), training_kinds().begin(), training_kinds().end());
    return kinds;
  }();
  return all;
}

Program random_program(uint64_t seed) {
  Dice dice(seed);
  Program program;
  program.setup = {.optimizer = static_cast<Optimizer>(dice.below(kOptimizers)),
                   .aliasing = static_cast<Aliasing>(dice.one_in(2) ? dice.below(kAliasings) : 0),
                   .between = static_cast<Between>(dice.one_in(2) ? dice.below(kBetweens) : 0),
                   .shapes = dice.one_in(3) ? 2 + dice.below(2) : 1,
                   .parameter_hook = dice.one_in(4),
                   .keeps_results = dice.one_in(3)};
  const auto add = [&](Role role, int count) {
    for (int i = 0; i < count; ++i) {
      program.statements.push_back(random_statement(role, dice));
    }
  };
  add(Role::begin, dice.one_in(4) ? dice.below(3) : 1);
  const int backwards = dice.one_in(3) ? 2 : 1;
  for (int round = 0; round < backwards; ++round) {
    const int losses = dice.one_in(4) ? 2 : 1;
    for (int i = 0; i < losses; ++i) {
      if (!dice.one_in(3)) {
        add(Role::forward, 1);
        program.statements.back().kind = kLinear;  // most losses depend on some parameters
      }
      add(Role::forward, 2 + dice.below(5));
      add(Role::loss, 1);
    }
    add(Role::backward, 1);
    if (dice.one_in(4)) {
      add(Role::update, 1);
    }
  }
  add(Role::update, 1 + dice.below(2));
  add(Role::result, dice.below(3));
  return program;
}

std::string listing(const Program& program) {
  std::ostringstream out;
  out << text_of(program.setup) << "r0, r1, labels = batch\n";
  int64_t registers = 2;
  for (const Statement& statement : program.statements) {
    const StatementKind& kind = statement_kinds()[static_cast<size_t>(statement.kind)];
    const auto number_of = [&](int back) {
      return registers - 1 - back % std::min<int64_t>(registers, kRegisters);
    };
    const Words words = [&](const std::string& name) {
      std::ostringstream text;
      switch (name[0]) {
        case 'y': text << "r" << registers; break;
        case 'a': text << "r" << number_of(statement.a); break;
        case 'b': text << "r" << number_of(statement.b); break;
        case 'n': text << statement.number << filled(text_of(statement.change), words); break;
        default: text << chosen(name, statement.choice); break;
      }
      return text.str();
    };
    out << filled(std::string(text_of(statement.when)) + kind.text, words);
    if (kind.makes_register()) {
      out << (statement.when == When::always ? "" : filled("; else {y} = {a}", words));
      ++registers;
    }
    out << "\n";
  }
  return out.str();
}

Program shrink(Program program, const std::function<bool(const Program&)>& fails) {
  const auto adopt_if_failing = [&](const Program& simpler) {
    const bool still = fails(simpler);
    if (still) {
      program = simpler;
    }
    return still;
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = program.statements.size(); i-- > 0;) {
      Program shorter = program;
      shorter.statements.erase(shorter.statements.begin() + static_cast<std::ptrdiff_t>(i));
      progress |= adopt_if_failing(shorter);
    }
  }
  for (size_t i = 0; i < program.statements.size(); ++i) {
    Program simpler = program;
    simpler.statements[i].when = When::always;
    if (program.statements[i].when != When::always) {
      adopt_if_failing(simpler);
    }
    simpler = program;
    simpler.statements[i].change = Change::never;
    if (program.statements[i].change != Change::never) {
      adopt_if_failing(simpler);
    }
  }
  const auto try_setup = [&](auto Setup::*field) {
    Program simpler = program;
    simpler.setup.*field = Setup{}.*field;
    if (simpler.setup.*field != program.setup.*field) {
      adopt_if_failing(simpler);
    }
  };
  try_setup(&Setup::optimizer);
  try_setup(&Setup::aliasing);
  try_setup(&Setup::between);
  try_setup(&Setup::shapes);
  try_setup(&Setup::parameter_hook);
  try_setup(&Setup::keeps_results);
  return program;
}

}  // namespace remat::testing
