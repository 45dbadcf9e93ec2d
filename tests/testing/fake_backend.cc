// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_backend.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

namespace remat::testing {
namespace {

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 32);
}

uint64_t mixed(uint64_t hash, const std::string& text) {
  for (const char c : text) hash = mixed(hash, static_cast<uint64_t>(c));
  return mixed(hash, text.size());
}

// splitmix64.
struct Generator {
  uint64_t state = 42;
  uint64_t draw() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
};

class Ledger {
 public:
  void allocate(int64_t bytes) {
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
  }
  void release(int64_t bytes) { allocated_ -= bytes; }
  int64_t allocated() const { return allocated_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t allocated_ = 0;
  int64_t peak_ = 0;
};

// Few words for any size, but not the same number for all: a place may grow and shrink.
size_t word_count(const Storage& storage) { return 1 + static_cast<size_t>(storage.bytes % 5); }

Words first_content(const Storage& storage) {
  Words words(word_count(storage));
  for (size_t i = 0; i < words.size(); ++i) words[i] = mixed(mixed(7, storage.name), i);
  return words;
}

uint64_t digest_of(const Op& op, const std::vector<const Words*>& inputs) {
  uint64_t digest = mixed(1, op.name);
  for (const Words* words : inputs) {
    for (const uint64_t word : *words) digest = mixed(digest, word);
    digest = mixed(digest, words->size());
  }
  return digest;
}

// As many numbers as the op's name is long, so that ops advance the generator differently.
uint64_t with_noise(uint64_t digest, const Op& op, Generator& generator) {
  for (size_t i = 0; i < op.name.size(); ++i) digest = mixed(digest, generator.draw());
  return digest;
}

void overwrite(Words& words, uint64_t digest, size_t slot) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = mixed(mixed(digest, slot), i);
}

// In place: what comes out depends on every word that was there.
void update(Words& words, uint64_t digest, size_t slot) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = mixed(mixed(words[i], digest), slot + 100);
}

class Execution {
 public:
  Execution(const Graph& graph, const Schedule& schedule) : graph_(graph), schedule_(schedule) {
    arrays_.resize(schedule.instances.size());
    state_at_run_.resize(graph.ops.size());
    for (size_t i = 0; i < graph.external_count; ++i) {
      arrays_[i] = first_content(graph.storages[i]);
      ledger_.allocate(graph.storages[i].bytes);
    }
  }

  FakeOutcome run() {
    for (const ScheduleStep& step : schedule_.steps) {
      switch (step.kind) {
        case StepKind::free: free(step.instance); break;
        case StepKind::run:
        case StepKind::recompute: execute(step); break;
        default: move(step);
      }
    }
    return outcome();
  }

 private:
  Words& array(InstanceId id) {
    if (!arrays_[index(id)]) throw std::logic_error("fake backend: the array is not there");
    return *arrays_[index(id)];
  }
  const Instance& instance(InstanceId id) const { return schedule_.instances[index(id)]; }
  const Storage& storage(InstanceId id) const { return graph_.storage(instance(id).storage); }
  int64_t bytes(InstanceId id) const { return storage(id).bytes; }

  void free(InstanceId id) {
    end_write(id, array(id));
    arrays_[index(id)].reset();
    ledger_.release(bytes(id));
  }

  // A write that goes on while the array changes, or is given away, leaves garbage.
  void end_write(InstanceId id, const Words& words) {
    const auto write = written_.find(id);
    if (write == written_.end()) return;
    std::optional<Words>& form = arrays_[index(write->second)];
    if (form && *form != words) form = Words{0xbad};
    written_.erase(write);
  }

  // What is packed looks like nothing but itself, what is offloaded like the value.
  void move(const ScheduleStep& step) {
    const InstanceId from = schedule_.reads(graph_, step)[0];
    const InstanceId to = schedule_.creates(graph_, step)[0];
    ledger_.allocate(bytes(to));
    const bool packs = step.kind == StepKind::pack || step.kind == StepKind::unpack;
    arrays_[index(to)] = packs ? in_other_form(array(from)) : array(from);
    if (step.kind == StepKind::offload) written_[from] = to;
  }

  // Packs, and unpacks.
  static Words in_other_form(Words words) {
    for (uint64_t& word : words) word ^= 0x5eed5eed5eed5eed;
    return words;
  }

  void execute(const ScheduleStep& step) {
    const Op& op = graph_.op(step.op);
    const auto created = schedule_.creates(graph_, step);
    for (const InstanceId id : created) ledger_.allocate(bytes(id) - shared_bytes(id));
    ledger_.allocate(op.workspace_bytes);
    compute(step, op);
    ledger_.release(op.workspace_bytes);
    for (const InstanceId id : created) {
      const InstanceId source = instance(id).in_place_of;
      if (source != kNoInstance) ledger_.release(bytes(source) - shared_bytes(id));
    }
  }

  int64_t shared_bytes(InstanceId result) const {
    const InstanceId source = instance(result).in_place_of;
    return source == kNoInstance ? 0 : std::min(bytes(result), bytes(source));
  }

  void compute(const ScheduleStep& step, const Op& op) {
    const bool first = step.kind == StepKind::run;
    std::vector<const Words*> inputs;
    for (const InstanceId id : schedule_.reads(graph_, step)) inputs.push_back(&array(id));
    for (const InstanceId id : schedule_.updates(graph_, step)) inputs.push_back(&array(id));
    Words unpacked;  // by an op that can read packed bytes
    for (size_t i = 0; i < op.reads.size(); ++i) {
      if (!graph_.is_form(op.reads[i].storage)) continue;
      unpacked = in_other_form(*inputs[i]);
      inputs[i] = &unpacked;
    }
    uint64_t digest = digest_of(op, inputs);
    if (op.random) {
      if (first) state_at_run_[index(step.op)] = generator_;
      const Generator saved = generator_;
      generator_ = state_at_run_[index(step.op)].value();
      digest = with_noise(digest, op, generator_);
      if (!first) generator_ = saved;
    }
    const auto created = schedule_.creates(graph_, step);
    for (size_t i = 0; i < created.size(); ++i) {
      Words words = place_for(created[i]);
      overwrite(words, digest, i);
      arrays_[index(created[i])] = std::move(words);
    }
    const auto updated = schedule_.updates(graph_, step);
    for (size_t i = 0; i < updated.size(); ++i) update(array(updated[i]), digest, i);
    if (!first) return;
    for (size_t i = 0; i < op.effects.size(); ++i) {
      update(arrays_[index(op.effects[i].storage)].value(), digest, 50 + i);
    }
  }

  Words place_for(InstanceId result) {
    Words words;
    if (const InstanceId source = instance(result).in_place_of; source != kNoInstance) {
      words = std::move(array(source));
      arrays_[index(source)].reset();
      end_write(source, {});
    }
    words.resize(word_count(storage(result)));
    return words;
  }

  FakeOutcome outcome() {
    FakeOutcome result;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!arrays_[i]) continue;
      auto& group = i < graph_.external_count ? result.externals : result.outputs;
      group[storage(static_cast<InstanceId>(i)).name] = *arrays_[i];
    }
    result.generator_state = generator_.state;
    result.peak_bytes = ledger_.peak();
    result.left_bytes = ledger_.allocated();
    return result;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  std::vector<std::optional<Words>> arrays_;            // by instance
  std::vector<std::optional<Generator>> state_at_run_;  // by op
  std::map<InstanceId, InstanceId> written_;            // arrays that are being written, and to where
  Generator generator_;
  Ledger ledger_;
};

}  // namespace

FakeOutcome run_plain(const Graph& graph) {
  std::vector<Words> arrays;
  for (const Storage& storage : graph.storages) arrays.push_back(first_content(storage));
  Generator generator;
  for (const Op& op : graph.ops) {
    std::vector<const Words*> inputs;
    for (const Value& value : op.reads) inputs.push_back(&arrays[index(value.storage)]);
    for (const Value& value : op.updates) inputs.push_back(&arrays[index(value.storage)]);
    uint64_t digest = digest_of(op, inputs);
    if (op.random) digest = with_noise(digest, op, generator);
    for (size_t i = 0; i < op.creates.size(); ++i) {
      overwrite(arrays[index(op.creates[i])], digest, i);
    }
    for (size_t i = 0; i < op.updates.size(); ++i) {
      update(arrays[index(op.updates[i].storage)], digest, i);
    }
    for (size_t i = 0; i < op.effects.size(); ++i) {
      update(arrays[index(op.effects[i].storage)], digest, 50 + i);
    }
  }
  FakeOutcome result;
  for (size_t i = 0; i < graph.storages.size(); ++i) {
    const Storage& storage = graph.storages[i];
    result.peak_bytes += storage.bytes;
    if (storage.external()) result.externals[storage.name] = arrays[i];
    if (storage.output && !storage.external()) result.outputs[storage.name] = arrays[i];
  }
  result.left_bytes = result.peak_bytes;
  result.generator_state = generator.state;
  return result;
}

FakeOutcome execute_fake(const Graph& graph, const Schedule& schedule) {
  return Execution(graph, schedule).run();
}

}  // namespace remat::testing
