// SPDX-License-Identifier: Apache-2.0
// packing_bench: how fast values are packed, unpacked and read packed, against memcpy of the
// unpacked bytes on as many threads. Methods are interleaved, A B C A B C, in one process; medians.
// GB/s are of unpacked bytes; `x` is the share of memcpy's bandwidth.
//
//   packing_bench                            the tables of bench/README.md
//   packing_bench --mib 1 --threads 1 --rules above
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "remat/libtorch/packed_readers.h"
#include "remat/libtorch/packing_kernels.h"
#include "remat/libtorch/packing_loops.h"

namespace {

using remat::detail::PackFormat;
using remat::detail::PackRule;
namespace kernels = remat::detail;

bool cpu_time = false;

double now_ns() {
  timespec now{};
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

// A way to go over `bytes` unpacked bytes once.
struct Method {
  std::string name;
  std::function<void()> run;
};

// GB/s of each method. What takes less than a millisecond is repeated inside of a round.
std::vector<double> bandwidths(const std::vector<Method>& methods, int64_t bytes, int rounds) {
  const auto repeats = std::max<int64_t>(1, (int64_t{16} << 20) / bytes);
  std::vector<std::vector<double>> seen(methods.size());
  for (int round = -2; round < rounds; ++round) {
    for (size_t i = 0; i < methods.size(); ++i) {
      const double start = now_ns();
      for (int64_t repeat = 0; repeat < repeats; ++repeat) {
        methods[i].run();
      }
      const double each_ns = (now_ns() - start) / static_cast<double>(repeats);
      if (round >= 0) {  // before, pages and caches are warmed
        seen[i].push_back(static_cast<double>(bytes) / each_ns);
      }
    }
  }
  std::vector<double> result;
  for (const std::vector<double>& each : seen) {
    result.push_back(median(each));
  }
  return result;
}

Method copying(const at::Tensor& from, const at::Tensor& to) {
  return {"memcpy", [=] {
            const auto* const source = static_cast<const char*>(from.const_data_ptr());
            auto* const target = static_cast<char*>(to.mutable_data_ptr());
            kernels::in_threads(static_cast<int64_t>(from.nbytes()), 128 << 10, source,
                                [&](int64_t begin, int64_t end) {
                                  std::memcpy(target + begin, source + begin, end - begin);
                                });
          }};
}

struct Case {
  std::string name;
  PackFormat format;
  at::Tensor tensor;
};

// What the rules are for, as large as asked.
std::vector<Case> cases(int64_t bytes) {
  const auto format = [](PackRule rule, const at::Tensor& tensor) {
    return PackFormat{.rule = rule, .dtype = tensor.scalar_type(), .elements = tensor.numel()};
  };
  std::vector<Case> all;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const int64_t elements = bytes / static_cast<int64_t>(at::elementSize(dtype));
    const std::string type = c10::toString(dtype);
    const at::Tensor mask = at::empty({elements}, dtype).bernoulli_(0.9).div_(0.9);
    all.push_back({"two_values " + type, format(PackRule::two_values, mask), mask});
    const at::Tensor x = at::randn({elements}).to(dtype);
    all.push_back({"above " + type, format(PackRule::above, x), x});
    all.push_back({"between " + type, format(PackRule::between, x), x});
    all.back().format.high = 1;
  }
  const at::Tensor bytes_mask = at::rand({bytes}) < 0.5;
  all.push_back({"two_values Bool", format(PackRule::two_values, bytes_mask), bytes_mask});
  all.push_back({"bools", format(PackRule::bools, bytes_mask), bytes_mask});
  for (const int64_t narrow : {1, 2, 4}) {
    const at::Tensor ids = at::randint(int64_t{1} << (8 * narrow - 1), {bytes / 8}, at::kLong);
    all.push_back({"narrow Long to " + std::to_string(narrow), format(PackRule::narrow, ids), ids});
    all.back().format.narrow_bytes = narrow;
  }
  for (const bool channels_last : {false, true}) {
    const int64_t channels = bytes / 8 / 32 / 32;
    const auto layout =
        channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    const at::Tensor x = at::randn({1, channels, 64, 64}).contiguous(layout);
    const at::Tensor indices = std::get<1>(at::max_pool2d_with_indices(x, 3, 2, 1));
    const at::Tensor flat = indices.permute({0, 2, 3, 1}).is_contiguous()
                                ? indices.permute({0, 2, 3, 1}).flatten()
                                : indices.flatten();
    all.push_back({channels_last ? "pool_offsets, channels last" : "pool_offsets",
                   format(PackRule::pool_offsets, flat), flat});
    const kernels::PoolDimension window{
        .in = 64, .out = 32, .kernel = 3, .stride = 2, .padding = 1};
    all.back().format.pool = {.dimensions = {{{}, window, window}},
                              .channels_last = channels_last ? channels : 1};
  }
  const at::Tensor floats = at::randn({bytes / 4});
  all.push_back({"from_bfloat16", format(PackRule::from_bfloat16, floats),
                 floats.to(at::kBFloat16).to(at::kFloat)});
  all.push_back(
      {"from_half", format(PackRule::from_half, floats), floats.to(at::kHalf).to(at::kFloat)});
  return all;
}

void bench_packing(const Case& each, int threads, int rounds) {
  const at::Tensor back = at::empty_like(each.tensor);
  const at::Tensor packed = at::empty({kernels::packed_bytes(each.format)}, at::kByte);
  const void* const from = each.tensor.const_data_ptr();
  std::vector<Method> methods = {copying(each.tensor, back)};
  methods.push_back({"pack", [&] {
                       if (!kernels::pack(each.format, from, packed.mutable_data_ptr())) {
                         throw std::runtime_error("cannot be packed: " + each.name);
                       }
                     }});
  if (kernels::can_unpack(each.format.rule)) {
    methods.push_back(
        {"unpack",
         [&] { kernels::unpack(each.format, packed.const_data_ptr(), back.mutable_data_ptr()); }});
  }
  const int64_t bytes = static_cast<int64_t>(each.tensor.nbytes());
  const std::vector<double> found = bandwidths(methods, bytes, rounds);
  std::printf("| %s | %ld | %d | %.1f | %.1f | %.2f |", each.name.c_str(), bytes >> 20, threads,
              found[0], found[1], found[1] / found[0]);
  if (methods.size() > 2) {
    std::printf(" %.1f | %.2f |\n", found[2], found[2] / found[0]);
  } else {
    std::printf(" | |\n");
  }
  std::fflush(stdout);
}

void bench_readers(const Case& each, int threads, int rounds) {
  const at::Tensor& x = each.tensor;
  const at::Tensor grad = at::randn({x.numel()}).to(x.scalar_type());
  at::Tensor out = at::empty_like(x);
  const at::Tensor packed = at::empty({kernels::packed_bytes(each.format)}, at::kByte);
  const auto line = [&](const char* name, const PackFormat& format, const auto& reader,
                        const auto& plain) {
    if (!kernels::pack(format, x.const_data_ptr(), packed.mutable_data_ptr())) {
      throw std::runtime_error("cannot be packed: " + each.name);
    }
    const int64_t bytes = static_cast<int64_t>(x.nbytes());
    const std::vector<double> found = bandwidths(
        {copying(grad, out),
         {"packed",
          [&] {
            reader(format, packed.const_data_ptr(), grad.const_data_ptr(), out.mutable_data_ptr());
          }},
         {"plain", plain}},
        bytes, rounds);
    std::printf("| %s %s | %ld | %d | %.1f | %.1f | %.2f | %.1f |\n", name,
                c10::toString(x.scalar_type()), bytes >> 20, threads, found[0], found[1],
                found[1] / found[0], found[2]);
    std::fflush(stdout);
  };
  if (each.format.rule == PackRule::above) {
    line("threshold_backward", each.format, kernels::packed_threshold_backward,
         [&] { at::threshold_backward_out(out, grad, x, 0); });
    PackFormat leaky = each.format;
    leaky.nan_is_above = false;
    line(
        "leaky_relu_backward", leaky,
        [](const PackFormat& format, const void* bits, const void* in, void* to) {
          kernels::packed_leaky_relu_backward(format, bits, in, 0.01, to);
        },
        [&] { at::leaky_relu_backward_out(out, grad, x, 0.01, false); });
  } else if (each.format.rule == PackRule::between) {
    line("hardtanh_backward", each.format, kernels::packed_hardtanh_backward,
         [&] { at::hardtanh_backward_out(out, grad, x, 0, 1); });
  } else if (each.format.rule == PackRule::two_values && x.is_floating_point()) {
    line(
        "mul", each.format,
        [](const PackFormat& format, const void* bits, const void* in, void* to) {
          kernels::packed_mul(format, bits, in, false, to);
        },
        [&] { at::mul_out(out, grad, x); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How fast values are packed, unpacked and read packed, against memcpy");
  std::vector<int64_t> mib = {1, 64};
  std::vector<int> threads = {1, 2};
  std::string rules;
  int rounds = 15;
  int vectors = 1;
  app.add_option("--mib", mib, "unpacked MiB")->delimiter(',');
  app.add_option("--threads", threads)->delimiter(',');
  app.add_option("--rules", rules, "only cases whose name contains it");
  app.add_option("--rounds", rounds);
  app.add_flag("--cpu", cpu_time, "CPU time of one thread, for a machine with other work");
  app.add_option("--vectors", vectors, "0: plain, 1: AVX2");
  CLI11_PARSE(app, argc, argv);
  try {
    torch::manual_seed(1);
    const at::NoGradGuard no_grad;
    kernels::use_vectors(static_cast<kernels::Vectors>(vectors));
    for (const bool readers : {false, true}) {
      std::printf(readers ? "\n| read packed | MiB | threads | memcpy GB/s | packed | x | the op "
                            "on the unpacked tensor |\n"
                            "|---|---:|---:|---:|---:|---:|---:|\n"
                          : "| rule | MiB | threads | memcpy GB/s | pack | x | unpack | x |\n"
                            "|---|---:|---:|---:|---:|---:|---:|---:|\n");
      for (const int64_t size : mib) {
        for (const Case& each : cases(size << 20)) {
          for (const int use : threads) {
            at::set_num_threads(use);
            if (each.name.find(rules) != std::string::npos) {
              (readers ? bench_readers : bench_packing)(each, use, rounds);
            }
          }
        }
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "packing_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
