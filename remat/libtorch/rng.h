// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

// Generator states, and the random draws of one region. This is the only place that knows how a
// device keeps its generator.
namespace remat::detail {

// A generator's state as a value. A CPU state is copied straight out of the engine together with
// its cached normal samples, without which `randn` differs after an odd count; other devices go
// through get_state/set_state. The holder of a generator shared by threads locks its mutex first.
class GeneratorState {
 public:
  static GeneratorState of(const at::Generator& generator);
  void restore(at::Generator& generator) const;
  bool operator==(const GeneratorState& other) const;

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

// The generator an op uses when it is given none.
const at::Generator& default_generator(c10::Device device);

// Where the random ops of a region's first run started. Only breaks are kept: if nothing else drew
// from the generator since the region's previous draw, the re-run arrives at the same state itself.
//
//   draw      0        1        2            3
//   region    ■────────■────────■            ■        states kept: 0 and 3
//   others                          ■ ■ ■
class DrawLog {
 public:
  // One random op that drew from `generator`, whose state went from `before` to `after`.
  void add(const at::Generator& generator, const GeneratorState& before,
           const GeneratorState& after);
  // The next draw must not rely on the one before it, which a re-run will not make.
  void break_here() { last_.clear(); }
  // The first run is over: what was only needed to find breaks is dropped.
  void close() { last_.clear(); }

  int64_t count() const { return count_; }

 private:
  friend class DrawReplay;
  std::unordered_map<int64_t, GeneratorState> starts_;  // by draw number
  std::unordered_map<const void*, GeneratorState> last_;
  int64_t count_ = 0;
};

// The same draws again, from generators of its own: the program's generators are never touched, so
// there is nothing to put back, not even when the re-run fails, and other threads may go on
// drawing.
class DrawReplay {
 public:
  explicit DrawReplay(const DrawLog& log) : log_(log) {}

  // A private generator in the state `generator` had at this draw of the first run. Beyond the
  // logged draws it continues from the state `generator` has now.
  at::Generator& next(const at::Generator& generator);

  int64_t count() const { return count_; }
  void skip_to(int64_t count) { count_ = count; }

 private:
  const DrawLog& log_;
  std::unordered_map<const void*, at::Generator> private_;
  int64_t count_ = 0;
};

}  // namespace remat::detail
