// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace remat {

// Names the layer that runs on this thread until the end of the C++ scope. Nested ones join:
//
//   remat::Scope block("layer1.0");
//   x = relu(x);                                                       // belongs to layer1.0
//   { remat::Scope layer("conv2"); x = conv2->forward(x); }            // to layer1.0.conv2
//
// Capture gives every op of the forward the path it ran under, for reports and errors. Characters
// that the graph's text form cannot hold (blanks, anything but printable ASCII) become '_'; an
// empty name adds nothing. Inside a function that is run again later, on any thread, such as a
// checkpointed block, open the Scope inside the function.
class [[nodiscard]] Scope {
 public:
  explicit Scope(std::string_view name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  size_t outer_length_;
};

namespace detail {

// A layer's name without the characters that the graph's text form cannot hold.
std::string scope_text(std::string_view name);

// The joined path of this thread's scopes, empty outside of any. Valid until the next Scope of this
// thread begins or ends.
const std::string& current_scope();

}  // namespace detail
}  // namespace remat
