// SPDX-License-Identifier: Apache-2.0
// channel_bench: how fast values go to a disk and back, how well the planners' model of that
// predicts a step that computes meanwhile, and how much slower its kernels get.
//
//   channel_bench                     two tables, in about ten seconds
//   channel_bench --folder DIR        on another disk
//   channel_bench pieces              pieces of other sizes, other numbers of them under way
//
// A step is made of ops on two threads: forward op i makes value i, which is then written; backward
// op i reads it, and its read begins some ops earlier. There is memory for a few values only, so
// that op i waits until value i - kBuffers has been written. The prediction replays that with the
// times that the ops take without a channel, and with one queue, first in, first out, in which a
// request takes latency + bytes / bandwidth, as measure_channel found them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/channel_work.h"
#include "remat/core/units.h"
#include "remat/libtorch/channel_speed.h"
#include "remat/libtorch/file_channel.h"

namespace {

using remat::KiB;
using remat::MiB;
using remat::bench::Kernels;
using remat::bench::median;
using remat::bench::Memory;
using remat::bench::seconds;
using remat::bench::wall;
using remat::detail::Channel;
using remat::detail::ChannelSpeed;
using remat::detail::FileChannel;
using remat::detail::FileChannelOptions;

struct Way {
  const char* name;
  bool uring;
  bool direct;
};
constexpr Way kWays[] = {{"io_uring, direct", true, true},
                         {"blocking, direct", false, true},
                         {"blocking, page cache", false, false}};

std::unique_ptr<FileChannel> open(const std::string& folder, const Way& way,
                                  int64_t piece_bytes = 0, int64_t depth = 0) {
  FileChannelOptions options;
  options.folder = folder;
  options.prefer_uring = way.uring;
  options.direct = way.direct;
  if (piece_bytes > 0) {
    options.piece_bytes = piece_bytes;
    options.depth = depth;
  }
  return remat::detail::open_file_channel(options);
}

// ---- Steps ------------------------------------------------------------------------------

constexpr int kValues = 12;
constexpr int kBuffers = 4;
constexpr int kAhead = 2;  // reads begin so many ops before their value is needed

// What the same course of a step does in reality and in the model: run ops, begin and await
// requests.
struct Course {
  std::function<void()> op;
  std::function<int64_t(int value)> write;
  std::function<int64_t(int value)> read;
  std::function<void(int64_t ticket)> wait;
};

void run_step(const Course& course) {
  std::vector<int64_t> written(kValues);
  std::vector<int64_t> read(kValues);
  for (int i = 0; i < kValues; ++i) {
    if (i >= kBuffers) {
      course.wait(written[static_cast<size_t>(i - kBuffers)]);
    }
    course.op();
    written[static_cast<size_t>(i)] = course.write(i);
  }
  int next = kValues - 1;
  for (int i = kValues - 1; i >= 0; --i) {
    for (; next >= std::max(0, i - kAhead); --next) {
      // What was written from its buffer last must be on the disk.
      const int last = kValues - 1 - (kValues - 1 - next) % kBuffers;
      course.wait(written[static_cast<size_t>(last)]);
      read[static_cast<size_t>(next)] = course.read(next);
    }
    course.wait(read[static_cast<size_t>(i)]);
    course.op();
  }
}

// The model: clocks of the program and of the queue.
double predict(const ChannelSpeed& speed, double op_seconds, int64_t value_bytes) {
  double now = 0;
  double queue = 0;
  std::vector<double> ends = {0};
  const auto request = [&](int64_t ns) {
    queue = std::max(queue, now) + static_cast<double>(ns) * 1e-9;
    ends.push_back(queue);
    return static_cast<int64_t>(ends.size()) - 1;
  };
  run_step({[&] { now += op_seconds; }, [&](int) { return request(speed.write_ns(value_bytes)); },
            [&](int) { return request(speed.read_ns(value_bytes)); },
            [&](int64_t ticket) { now = std::max(now, ends[static_cast<size_t>(ticket)]); }});
  return now;
}

struct Measured {
  double step = 0;        // seconds
  double kernels = 0;     // of it, in ops
  double submitting = 0;  // CPU seconds of the program's thread in write() and read()
};

Measured measure(Kernels& kernels, Channel& channel, const Memory& buffers, int64_t value_bytes) {
  Measured found;
  const auto buffer = [&](int value) { return buffers.at(value % kBuffers * value_bytes); };
  const auto begin = [&](const auto& request) {
    const double begun = seconds(CLOCK_THREAD_CPUTIME_ID);
    const int64_t ticket = request();
    found.submitting += seconds(CLOCK_THREAD_CPUTIME_ID) - begun;
    return ticket;
  };
  kernels.run();
  const double begun = wall();
  run_step({[&] {
              const double op_begun = wall();
              kernels.run();
              found.kernels += wall() - op_begun;
            },
            [&](int value) {
              return begin(
                  [&] { return channel.write(value * value_bytes, buffer(value), value_bytes); });
            },
            [&](int value) {
              return begin(
                  [&] { return channel.read(value * value_bytes, buffer(value), value_bytes); });
            },
            [&](int64_t ticket) { channel.wait(ticket); }});
  found.step = wall() - begun;
  return found;
}

double measure_plain(Kernels& kernels) {
  kernels.run();  // both threads are awake
  const double begun = wall();
  for (int i = 0; i < 2 * kValues; ++i) {
    kernels.run();
  }
  return wall() - begun;
}

// A plain step before and after each with a channel, whose ops its prediction is made of: other
// work on the machine disturbs both alike. Medians over rounds, also of the ratios.
void compare_steps(const std::string& folder, bool in_cache, double op_seconds, int64_t value_bytes,
                   int rounds) {
  std::printf("\nops of some %.0f ms on two threads (%s), values of %s\n", op_seconds * 1e3,
              in_cache ? "products in the cache" : "sums past the caches",
              remat::format_bytes(value_bytes).c_str());
  std::printf(
      "| channel | measure_channel: write, read | kernels alone | predicted | measured | measured "
      "/ "
      "predicted | kernels slowed by | submitting |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|\n");
  const Memory buffers(kBuffers * value_bytes);
  std::vector<std::unique_ptr<FileChannel>> channels;
  std::vector<ChannelSpeed> speeds;
  for (const Way& way : kWays) {
    channels.push_back(open(folder, way));
    speeds.push_back(remat::detail::measure_channel(*channels.back(), 32 * MiB));
    channels.back()->reserve(kValues * value_bytes);
  }
  Kernels kernels(in_cache, op_seconds);
  struct Samples {
    std::vector<double> plain, predicted, measured, ratio, slowed, submitting;
  };
  std::vector<Samples> samples(channels.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < channels.size(); ++i) {
      const double before = measure_plain(kernels);
      const Measured found = measure(kernels, *channels[i], buffers, value_bytes);
      const double plain = (before + measure_plain(kernels)) / 2;
      const double predicted = predict(speeds[i], plain / (2 * kValues), value_bytes);
      if (round >= 0) {  // the first finds out where the bytes go
        samples[i].plain.push_back(plain);
        samples[i].predicted.push_back(predicted);
        samples[i].measured.push_back(found.step);
        samples[i].ratio.push_back(found.step / predicted);
        samples[i].slowed.push_back(found.kernels / plain);
        samples[i].submitting.push_back(found.submitting / (2 * kValues));
      }
    }
  }
  for (size_t i = 0; i < channels.size(); ++i) {
    std::printf(
        "| %s | %.2f, %.2f GB/s | %.0f ms | %.0f ms | %.0f ms | %.2f | %.1f %% | %.1f us |\n",
        kWays[i].name, speeds[i].write_bytes_per_second / 1e9,
        speeds[i].read_bytes_per_second / 1e9, median(samples[i].plain) * 1e3,
        median(samples[i].predicted) * 1e3, median(samples[i].measured) * 1e3,
        median(samples[i].ratio), 100 * median(samples[i].slowed) - 100,
        median(samples[i].submitting) * 1e6);
  }
}

// ---- Bandwidth ------------------------------------------------------------------------------

struct Bandwidth {
  double write = 0;  // bytes per second
  double read = 0;
  double cpu_write = 0;  // seconds per byte, all threads
  double cpu_read = 0;
};

Bandwidth find_bandwidth(Channel& channel, const Memory& memory, int64_t bytes,
                         int64_t request_bytes) {
  Bandwidth found;
  for (const bool write : {true, true, false}) {  // the first finds out where the bytes go
    const double begun = wall();
    const double cpu_begun = seconds(CLOCK_PROCESS_CPUTIME_ID);
    Channel::Ticket last = 0;
    for (int64_t offset = 0; offset < bytes; offset += request_bytes) {
      last = write ? channel.write(offset, memory.at(offset), request_bytes)
                   : channel.read(offset, memory.at(offset), request_bytes);
    }
    channel.wait(last);
    (write ? found.write : found.read) = static_cast<double>(bytes) / (wall() - begun);
    (write ? found.cpu_write : found.cpu_read) =
        (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begun) / static_cast<double>(bytes);
  }
  return found;
}

Bandwidth median_bandwidth(const std::string& folder, const Way& way, bool huge,
                           int64_t piece_bytes, int64_t depth) {
  constexpr int64_t kBytes = 128 * MiB;
  const Memory memory(kBytes, huge);
  std::vector<double> found[4];
  const auto channel = open(folder, way, piece_bytes, depth);
  channel->reserve(kBytes);
  for (int i = 0; i < 5; ++i) {
    const Bandwidth once = find_bandwidth(*channel, memory, kBytes, 8 * MiB);
    found[0].push_back(once.write);
    found[1].push_back(once.read);
    found[2].push_back(once.cpu_write);
    found[3].push_back(once.cpu_read);
  }
  return {median(found[0]), median(found[1]), median(found[2]), median(found[3])};
}

double us_per_mib(double seconds_per_byte) {
  return seconds_per_byte * 1e6 * static_cast<double>(MiB);
}

void compare_ways(const std::string& folder) {
  std::printf(
      "requests of 8 MiB, nothing else running in the process; CPU time of all its threads per "
      "MiB\n");
  std::printf(
      "| channel | write | read | CPU, write | CPU, read | measure_channel: write | read | latency "
      "| takes |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const Way& way : kWays) {
    const Bandwidth found = median_bandwidth(folder, way, true, 0, 0);
    const auto channel = open(folder, way);
    const double begun = wall();
    const ChannelSpeed speed = remat::detail::measure_channel(*channel, 32 * MiB);
    const double taken = wall() - begun;
    std::printf(
        "| %s | %.2f GB/s | %.2f GB/s | %.1f us | %.1f us | %.2f GB/s | %.2f GB/s | %.0f us | %.2f "
        "s |\n",
        way.name, found.write / 1e9, found.read / 1e9, us_per_mib(found.cpu_write),
        us_per_mib(found.cpu_read), speed.write_bytes_per_second / 1e9,
        speed.read_bytes_per_second / 1e9, static_cast<double>(speed.latency_ns) / 1e3, taken);
  }
  const auto channel = open(folder, kWays[0]);
  std::printf("\n%s; aligned to %lld bytes\n", channel->description().c_str(),
              static_cast<long long>(channel->alignment_bytes()));
}

void compare_pieces(const std::string& folder) {
  std::printf(
      "| channel | pages | pieces | under way | write GB/s | read GB/s | CPU us/MiB, write | read "
      "|\n"
      "|---|---|---:|---:|---:|---:|---:|---:|\n");
  for (const bool huge : {true, false}) {
    for (size_t way = 0; way < 2; ++way) {
      for (const int64_t piece : {256 * KiB, MiB, 2 * MiB, 4 * MiB, 8 * MiB}) {
        for (const int64_t depth : {2, 4, 8, 16}) {
          if (kWays[way].uring ? piece * depth > 32 * MiB : depth > 2) {
            continue;
          }
          const Bandwidth found = median_bandwidth(folder, kWays[way], huge, piece, depth);
          std::printf("| %s | %s | %s | %lld | %.2f | %.2f | %.1f | %.1f |\n", kWays[way].name,
                      huge ? "huge" : "4 KiB", remat::format_bytes(piece).c_str(),
                      static_cast<long long>(kWays[way].uring ? depth : 1), found.write / 1e9,
                      found.read / 1e9, us_per_mib(found.cpu_write), us_per_mib(found.cpu_read));
          std::fflush(stdout);
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "How fast values go to a disk and back beside kernels, and how well that is predicted");
  std::string folder = "/var/tmp";
  int rounds = 5;
  app.add_option("--folder", folder, "on the disk to be measured");
  app.add_option("--rounds", rounds, "of each kind of step");
  CLI::App* const pieces = app.add_subcommand("pieces", "requests cut into pieces of other sizes");
  CLI11_PARSE(app, argc, argv);
  try {
    if (*pieces) {
      compare_pieces(folder);
      return 0;
    }
    compare_ways(folder);
    compare_steps(folder, true, 0.008, 8 * MiB, rounds);  // transfers fit beside the kernels
    compare_steps(folder, false, 0.008, 8 * MiB, rounds);
    compare_steps(folder, true, 0.002, 16 * MiB, rounds);  // they do not
  } catch (const std::exception& error) {
    std::fprintf(stderr, "channel_bench: %s\n", error.what());
    return 1;
  }
}
