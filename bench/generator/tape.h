// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "remat/core/graph_builder.h"

namespace remat::bench {

using Shape = std::vector<int64_t>;

// A storage seen through a shape. Copies and views are free, as in the framework.
struct Tensor {
  std::string storage = {};
  Shape shape = {};
  int64_t element_bytes = 4;
  int32_t version = 0;    // the storage's, when this tensor was made
  int32_t variable = -1;  // whose gradient is collected; -1: nobody asks for it
  bool dense = true;      // false: a slice or another order of elements; nothing is written over it

  int64_t elements() const;
  int64_t bytes() const { return elements() * element_bytes; }
  bool needs_gradient() const { return variable >= 0; }
  // Reshaped, transposed or permuted: same storage, and a gradient that is a view as well.
  Tensor viewed(Shape as) const;
};

// What an op is to create.
struct Creation {
  Shape shape = {};
  int64_t element_bytes = 4;
};
Creation floats(Shape shape);
Creation indices(Shape shape);  // int64
Creation bools(Shape shape);

// One ATen call.
struct Call {
  std::string kind = {};  // without "aten::"; any other namespace is written out
  std::vector<Tensor> reads = {};
  std::vector<Tensor> updates = {};
  std::vector<Creation> creates = {};
  std::vector<Tensor> effects = {};
  int64_t flops = 0;
  int64_t workspace_bytes = 0;
  std::optional<int64_t> moved_bytes = {};  // none: all that is read, updated and created
  bool random = false;
  bool once = false;
};

class Tape;

// What comes after the forward pass and its backward.
struct StepEnd {
  // None: the parameters' gradients are outputs of the step.
  void (*optimizer)(Tape&) = nullptr;
  // Data parallelism: gradients are averaged over processes as they become ready, in buckets of at
  // least so many bytes, by collectives that must run once. 0: one process.
  int64_t bucket_bytes = 0;
};

// Writes a training step down as a Graph while it is "run": layers call `run` for each op and
// `record` what is to happen in backward, `finish` goes back through the records.
//
//     Tape tape;
//     Tensor x = tape.input("x", {32, 784});
//     x = relu(tape, "relu1", linear(tape, "fc1", x, 512));
//     Graph graph = tape.finish(cross_entropy(tape, x, tape.input("y", {32}, 8)));
//
// Gradients are collected as LibTorch's engine does it: the records run in reverse; a second
// gradient is added in place (add_) where nothing else holds the first one, else into a new storage
// (add). Every tensor knows its version: reading one that was overwritten since throws
// std::logic_error, like "modified by an inplace operation" does.
class Tape {
 public:
  // Externals. Their names are prefixed with the scope.
  Tensor input(std::string_view name, Shape shape, int64_t element_bytes = 4);
  Tensor param(std::string_view name, Shape shape);
  Tensor buffer(std::string_view name, Shape shape, int64_t element_bytes = 4);
  Tensor optimizer_state(const Tensor& param, std::string_view name);

  // Names the layer of the ops and externals made while it lives: "layer1.0.conv2".
  class Scope {
   public:
    Scope(Tape& tape, std::string_view name);
    ~Scope() { tape_.scope_ = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Tape& tape_;
    std::string outer_;
  };

  // Returns what was updated, at its new version, then what was created.
  std::vector<Tensor> run(const Call& call);
  // The same for a call with one result.
  Tensor run_one(const Call& call) { return run(call).at(0); }

  // `backward` gets the gradients of the results and gives those of the inputs. It is left out if
  // no gradient arrived; of several results, all must have one or none.
  using Backward = std::function<void(const Tensor& grad)>;
  using JointBackward = std::function<void(const std::vector<Tensor>& grads)>;
  Tensor record(const Tensor& result, Backward backward);
  std::vector<Tensor> record(std::vector<Tensor> results, JointBackward backward);
  void give_gradient(const Tensor& of, const Tensor& grad);

  const std::vector<Tensor>& params() const { return params_; }
  Tensor& gradient(const Tensor& param);

  Graph finish(const Tensor& loss, const StepEnd& end = {});

 private:
  struct StorageState {
    int32_t version = 0;
    int64_t bytes = 0;
    bool external = false;
    int32_t held = 0;  // gradients collected so far that live in it
  };
  struct Record {
    std::vector<Tensor> results;
    JointBackward backward;
    std::string scope;
  };

  std::string scoped(std::string_view name) const;
  Tensor external(std::string name, Shape shape, int64_t element_bytes, Role role);
  int32_t new_variable();
  const Tensor& checked(const Tensor& tensor) const;
  std::vector<OpSpec::ReusePair> reuse_of(const OpSpec& op, const std::vector<Tensor>& reads) const;
  void run_backward(const Tensor& loss, int64_t bucket_bytes);
  void run_record(const Record& record);
  void reduce_ready_gradients(int64_t bucket_bytes);

  GraphBuilder builder_;
  Phase phase_ = Phase::forward;
  std::string scope_;
  int64_t op_count_ = 0;
  std::unordered_map<std::string, StorageState> storages_;
  std::vector<std::optional<Tensor>> gradients_;  // by variable
  std::vector<Record> records_;
  std::vector<Tensor> params_;
  std::vector<Tensor> unreduced_;  // parameters whose gradients no collective has taken yet
};

}  // namespace remat::bench
