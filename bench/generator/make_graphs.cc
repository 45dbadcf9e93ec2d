// SPDX-License-Identifier: Apache-2.0
// make_graphs [--out DIR] [--list] [NAME...]: writes DIR/NAME.graph for the named graphs, or for
// all, into bench/graphs unless told otherwise; --list prints them as a table instead.
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>
#include <vector>

#include "bench/generator/graphs.h"
#include "remat/core/error.h"
#include "remat/core/graph_text.h"

namespace remat::bench {
namespace {

struct Arguments {
  std::filesystem::path directory = "bench/graphs";
  bool list = false;
  std::vector<const NamedGraph*> graphs;
};

Arguments parsed(const std::vector<std::string_view>& words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--list") {
      arguments.list = true;
    } else if (words[i] == "--out" && i + 1 < words.size()) {
      arguments.directory = words[++i];
    } else if (const NamedGraph* named = graph_named(words[i])) {
      arguments.graphs.push_back(named);
    } else {
      throw Error(detail::concat("found '", words[i],
                                 "'; expected --out DIR, --list or a name that --list shows"));
    }
  }
  if (arguments.graphs.empty()) {
    for (const NamedGraph& named : named_graphs()) arguments.graphs.push_back(&named);
  }
  return arguments;
}

void write(const std::filesystem::path& path, const Graph& graph) {
  std::ofstream file(path, std::ios::binary);
  file << print_graph(graph);
  file.close();
  if (!file) throw Error(detail::concat("cannot write ", path, "; expected a writable directory"));
}

void make(const Arguments& arguments) {
  if (arguments.list) std::cout << table_head();
  if (!arguments.list) std::filesystem::create_directories(arguments.directory);
  for (const NamedGraph* named : arguments.graphs) {
    const Graph graph = named->make();
    if (arguments.list) {
      std::cout << table_row(*named, graph);
    } else {
      write(arguments.directory / detail::concat(named->name, ".graph"), graph);
    }
  }
}

}  // namespace
}  // namespace remat::bench

int main(int count, char** words) {
  try {
    remat::bench::make(remat::bench::parsed({words + 1, words + count}));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "make_graphs: " << error.what() << "\n";
    return 1;
  }
}
