// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "remat/core/error.h"
#include "remat/core/graph_text.h"

// Any bytes are a graph or an Error, and a graph comes back from its text unchanged.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace remat;
  Graph graph;
  try {
    graph = parse_graph({reinterpret_cast<const char*>(data), size});
  } catch (const Error&) {
    return 0;
  }
  const std::string text = print_graph(graph);
  if (parse_graph(text) != graph || print_graph(parse_graph(text)) != text) std::abort();
  return 0;
}
