// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/random_graph.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/graph_builder.h"

namespace remat::testing {
namespace {

class Maker {
 public:
  Maker(std::mt19937_64& generator, const RandomGraphOptions& options)
      : generator_(generator), options_(options) {}

  Graph make() {
    for (int i = 0; i < options_.externals; ++i) {
      const bool is_input = i == 0;
      externals_.push_back((is_input ? "x" : "w") + std::to_string(i));
      builder_.external(externals_.back(), bytes(), is_input ? Role::input : Role::param);
    }
    for (int i = 0; i < 2; ++i) {
      buffers_.push_back("stat" + std::to_string(i));
      builder_.external(buffers_.back(), 8, Role::buffer);
    }
    for (int i = 0; i < options_.forward_ops; ++i) forward_op(i);
    builder_.output(results_.back());
    for (int i = options_.forward_ops; i-- > 0;) {
      if (chance(generator_, 0.9)) backward_op(i);
    }
    if (!gradients_.empty()) builder_.output(gradients_.back());
    if (options_.optimizer_phase) {
      for (size_t i = 1; i < externals_.size(); ++i) optimizer_op(i);
    }
    return std::move(builder_).build();
  }

 private:
  int64_t bytes() { return draw(generator_, 0, options_.largest_bytes); }

  const std::string& any(const std::vector<std::string>& names) {
    return names[static_cast<size_t>(draw(generator_, 0, static_cast<int64_t>(names.size()) - 1))];
  }

  // Mostly recent results, as in real networks, sometimes old ones (skips) or externals.
  const std::string& any_input() {
    if (results_.empty() || chance(generator_, 0.2)) return any(externals_);
    if (chance(generator_, 0.6)) return results_.back();
    return any(results_);
  }

  OpSpec plain_op(std::string name, Phase phase) {
    OpSpec op;
    op.name = std::move(name);
    op.phase = phase;
    op.kind = chance(generator_, 0.5) ? "aten::mm" : "aten::relu";
    op.time_ns = draw(generator_, 0, 1000);
    if (chance(generator_, options_.workspace_rate)) op.workspace_bytes = bytes();
    if (chance(generator_, 0.3)) op.scope = "layer" + std::to_string(draw(generator_, 0, 3));
    return op;
  }

  void maybe_reuse(OpSpec& op) {
    if (op.creates.empty() || op.reads.empty() || !chance(generator_, options_.reuse_rate)) return;
    const std::string& source = any(op.reads);
    if (std::find(op.updates.begin(), op.updates.end(), source) != op.updates.end()) return;
    op.reuse.push_back({op.creates.front().storage, source});
  }

  void forward_op(int i) {
    OpSpec op = plain_op("f" + std::to_string(i), Phase::forward);
    const int64_t inputs = draw(generator_, 1, 3);
    for (int64_t k = 0; k < inputs; ++k) op.reads.push_back(any_input());
    if (!results_.empty() && chance(generator_, options_.update_rate)) {
      op.updates.push_back(chance(generator_, 0.1) ? any(buffers_) : any(results_));
    }
    if (op.updates.empty() || chance(generator_, 0.3)) {
      const bool several = chance(generator_, options_.multi_output_rate);
      for (int k = 0; k < (several ? 3 : 1); ++k) {
        std::string created = "a" + std::to_string(i) + (k == 0 ? "" : "_" + std::to_string(k));
        op.creates.push_back({created, bytes()});
      }
    }
    op.random = chance(generator_, options_.random_rate);
    op.once = chance(generator_, options_.once_rate);
    if (chance(generator_, options_.effect_rate)) {
      const std::string& buffer = any(buffers_);
      if (op.updates.empty() || op.updates.front() != buffer) op.effects.push_back(buffer);
    }
    maybe_reuse(op);
    for (const OpSpec::Creation& creation : op.creates) results_.push_back(creation.storage);
    builder_.op(std::move(op));
  }

  void backward_op(int i) {
    OpSpec op = plain_op("b" + std::to_string(i), Phase::backward);
    op.reads.push_back(gradients_.empty() ? results_.back() : any_gradient());
    const int64_t saved = draw(generator_, 0, 3);
    for (int64_t k = 0; k < saved; ++k) op.reads.push_back(saved_near(i));
    if (chance(generator_, 0.3)) op.reads.push_back(any(externals_));
    if (!gradients_.empty() && chance(generator_, options_.update_rate)) {
      op.updates.push_back(gradients_.back());  // gradient accumulation
    }
    if (op.updates.empty() || chance(generator_, 0.5)) {
      op.creates.push_back({"g" + std::to_string(i), bytes()});
    }
    op.random = chance(generator_, options_.random_rate / 4);
    maybe_reuse(op);
    for (const OpSpec::Creation& creation : op.creates) gradients_.push_back(creation.storage);
    builder_.op(std::move(op));
  }

  const std::string& any_gradient() {
    return chance(generator_, 0.7) ? gradients_.back() : any(gradients_);
  }

  const std::string& saved_near(int i) {
    if (chance(generator_, 0.2)) return any(results_);
    const int64_t last = static_cast<int64_t>(results_.size()) - 1;
    const int64_t at = std::min<int64_t>(last, i + draw(generator_, -1, 1));
    return results_[static_cast<size_t>(std::max<int64_t>(0, at))];
  }

  void optimizer_op(size_t i) {
    OpSpec op = plain_op("o" + std::to_string(i), Phase::optimizer);
    if (!gradients_.empty()) op.reads.push_back(any(gradients_));
    op.updates.push_back(externals_[i]);
    builder_.op(std::move(op));
  }

  std::mt19937_64& generator_;
  RandomGraphOptions options_;
  GraphBuilder builder_;
  std::vector<std::string> externals_, buffers_, results_, gradients_;
};

}  // namespace

int64_t draw(std::mt19937_64& generator, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(generator() % static_cast<uint64_t>(high - low + 1));
}

bool chance(std::mt19937_64& generator, double probability) {
  return static_cast<double>(generator() >> 11) * 0x1.0p-53 < probability;
}

Graph random_graph(std::mt19937_64& generator, const RandomGraphOptions& options) {
  return Maker(generator, options).make();
}

}  // namespace remat::testing
