// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/sequential.h"

#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <unordered_set>

#include "remat/core/error.h"
#include "remat/libtorch/op_log.h"
#include "remat/libtorch/saved_hooks.h"

namespace remat {
namespace {

// Counts what autograd would save, each storage once, and keeps none of it.
class SavedBytes final : public detail::SavedTensorObserver {
 public:
  explicit SavedBytes(const detail::Rerun& trial) : trial_(trial) {}

  void ignore(const at::Tensor& tensor) { seen_.insert(tensor.storage().unsafeGetStorageImpl()); }

  void add(const at::Tensor& tensor) {
    if (tensor.has_storage() && trial_.created(tensor) &&
        seen_.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      bytes_ += static_cast<int64_t>(tensor.storage().nbytes());
    }
  }

  int64_t bytes() const { return bytes_; }

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override {
    struct Hook final : torch::autograd::SavedVariableHooks {
      explicit Hook(SavedBytes& counter_) : counter(counter_) {}
      void call_pack_hook(const at::Tensor& tensor) override { counter.add(tensor); }
      at::Tensor call_unpack_hook() override {
        throw Error(
            "[checkpoint_sequential] a layer calls backward inside its forward, which cannot be "
            "measured; give segment_sizes instead of balanced");
      }
      SavedBytes& counter;
    };
    return std::make_unique<Hook>(*this);
  }

 private:
  const detail::Rerun& trial_;
  std::unordered_set<const c10::StorageImpl*> seen_;
  int64_t bytes_ = 0;
};

std::vector<LayerCost> measure_once(const std::vector<Layer>& layers, const at::Tensor& input) {
  detail::OpLog nothing_logged;
  detail::Rerun trial = detail::Rerun::trial(nothing_logged);
  const detail::InterceptGuard intercept(&trial);
  std::vector<LayerCost> costs;
  at::Tensor x = input;
  for (const Layer& layer : layers) {
    SavedBytes saved(trial);
    saved.ignore(x);
    const detail::SavedTensorGuard guard(&saved);
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor y = layer.forward(x);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    costs.push_back({std::chrono::nanoseconds(elapsed).count(), saved.bytes(),
                     static_cast<int64_t>(y.nbytes())});
    x = y.detach().set_requires_grad(y.requires_grad());
  }
  return costs;
}

std::vector<int64_t> equal_segments(int64_t layers, int64_t segments) {
  std::vector<int64_t> sizes(segments, layers / segments);
  for (int64_t i = 0; i < layers % segments; ++i) {
    ++sizes[i];
  }
  return sizes;
}

// One entry per list of modules, input shape and number of segments; a training loop has one.
std::vector<int64_t> remembered_segments(const std::vector<Layer>& layers, int64_t segments,
                                         const at::Tensor& input) {
  using Key = std::tuple<std::vector<const void*>, std::vector<int64_t>, int, int64_t>;
  static std::mutex mutex;
  static auto& known = *new std::map<Key, std::vector<int64_t>>();
  constexpr size_t kMostRemembered = 64;

  Key key{{}, input.sizes().vec(), static_cast<int>(input.scalar_type()), segments};
  bool identified = true;
  for (const Layer& layer : layers) {
    std::get<0>(key).push_back(layer.id);
    identified = identified && layer.id != nullptr;
  }
  {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(key);
    if (identified && found != known.end()) {
      return found->second;
    }
  }
  std::vector<int64_t> sizes = balance_segments(measure_layers(layers, input), segments);
  std::lock_guard<std::mutex> lock(mutex);
  if (known.size() >= kMostRemembered) {
    known.clear();
  }
  if (identified) {
    known.insert_or_assign(std::move(key), sizes);
  }
  return sizes;
}

void check_sizes(const std::vector<int64_t>& sizes, size_t layers) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const bool positive = std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 0; });
  if (total != static_cast<int64_t>(layers) || !positive) {
    throw Error(detail::concat("[checkpoint_sequential] segment_sizes add up to ", total,
                               " layers; expected positive sizes that add up to ", layers));
  }
}

at::Tensor run_layers(const std::vector<Layer>& layers, at::Tensor x) {
  for (const Layer& layer : layers) {
    x = layer.forward(x);
  }
  return x;
}

// Cheapest way to cut the layers before `end` into a number of segments.
struct Cut {
  int64_t kept_bytes = std::numeric_limits<int64_t>::max();
  int64_t repeated_ns = 0;
  int64_t begin = -1;  // of the last segment
  auto order() const { return std::tie(kept_bytes, repeated_ns); }
};

// The segments, none of which saves more than `cap_bytes`, that keep the least between them.
// Empty if there are none.
std::vector<int64_t> cut_under(const std::vector<LayerCost>& costs, int64_t segments,
                               int64_t cap_bytes) {
  const auto layers = static_cast<int64_t>(costs.size());
  std::vector<std::vector<Cut>> best(segments + 1, std::vector<Cut>(layers + 1));
  best[0][0] = {0, 0, 0};
  for (int64_t s = 1; s <= segments; ++s) {
    for (int64_t end = s; end <= layers; ++end) {
      int64_t saved_bytes = 0;
      int64_t time_ns = 0;
      for (int64_t begin = end - 1; begin >= s - 1; --begin) {
        saved_bytes += costs[begin].saved_bytes;
        time_ns += costs[begin].time_ns;
        if (saved_bytes > cap_bytes) {
          break;
        }
        const Cut& before = best[s - 1][begin];
        if (before.begin < 0) {
          continue;
        }
        const bool last = s == segments && end == layers;
        const Cut candidate{before.kept_bytes + (last ? 0 : costs[end - 1].output_bytes),
                            before.repeated_ns + (last ? 0 : time_ns), begin};
        if (candidate.order() < best[s][end].order()) {
          best[s][end] = candidate;
        }
      }
    }
  }
  std::vector<int64_t> sizes;
  for (int64_t s = segments, end = layers; s >= 1; --s) {
    const Cut& cut = best[s][end];
    if (cut.begin < 0) {
      return {};
    }
    sizes.push_back(end - cut.begin);
    end = cut.begin;
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

struct Need {
  int64_t peak_bytes = 0;
  int64_t repeated_ns = 0;
  auto operator<=>(const Need&) const = default;
};

Need need_of(const std::vector<LayerCost>& costs, const std::vector<int64_t>& sizes) {
  Need need;
  int64_t largest_bytes = 0;
  size_t layer = 0;
  for (size_t s = 0; s < sizes.size(); ++s) {
    int64_t saved_bytes = 0;
    for (int64_t i = 0; i < sizes[s]; ++i, ++layer) {
      saved_bytes += costs[layer].saved_bytes;
      need.repeated_ns += s + 1 < sizes.size() ? costs[layer].time_ns : 0;
    }
    largest_bytes = std::max(largest_bytes, saved_bytes);
    need.peak_bytes += s + 1 < sizes.size() ? costs[layer - 1].output_bytes : 0;
  }
  need.peak_bytes += largest_bytes;
  return need;
}

// What a segment may save, worth trying: every sum of neighbours, thinned out for long chains.
std::vector<int64_t> caps_to_try(const std::vector<LayerCost>& costs) {
  constexpr size_t kMostCaps = 200;
  std::vector<int64_t> caps;
  for (size_t begin = 0; begin < costs.size(); ++begin) {
    int64_t saved_bytes = 0;
    for (size_t end = begin; end < costs.size(); ++end) {
      caps.push_back(saved_bytes += costs[end].saved_bytes);
    }
  }
  std::sort(caps.begin(), caps.end());
  caps.erase(std::unique(caps.begin(), caps.end()), caps.end());
  const size_t stride = caps.size() / kMostCaps + 1;
  std::vector<int64_t> thinned;
  for (size_t i = 0; i < caps.size(); i += stride) {
    thinned.push_back(caps[i]);
  }
  thinned.push_back(caps.back());
  return thinned;
}

}  // namespace

std::vector<LayerCost> measure_layers(const std::vector<Layer>& layers, const at::Tensor& input) {
  std::vector<LayerCost> costs = measure_once(layers, input);
  // The first forward pays for what LibTorch sets up once per shape.
  const std::vector<LayerCost> warm = measure_once(layers, input);
  for (size_t i = 0; i < costs.size(); ++i) {
    costs[i].time_ns = std::min(costs[i].time_ns, warm[i].time_ns);
  }
  return costs;
}

std::vector<int64_t> balance_segments(const std::vector<LayerCost>& costs, int64_t segments) {
  if (costs.empty() || segments < 1) {
    throw Error(detail::concat("[balance_segments] ", costs.size(), " layers in ", segments,
                               " segments; expected at least one of each"));
  }
  segments = std::min(segments, static_cast<int64_t>(costs.size()));
  std::vector<int64_t> best;
  for (const int64_t cap_bytes : caps_to_try(costs)) {
    std::vector<int64_t> sizes = cut_under(costs, segments, cap_bytes);
    if (!sizes.empty() && (best.empty() || need_of(costs, sizes) < need_of(costs, best))) {
      best = std::move(sizes);
    }
  }
  REMAT_ASSERT(!best.empty());
  return best;
}

at::Tensor checkpoint_sequential(const std::vector<Layer>& layers, int64_t segments,
                                 const at::Tensor& input, const SequentialOptions& options) {
  if (layers.empty() || segments < 1) {
    throw Error(detail::concat("[checkpoint_sequential] ", layers.size(), " layers in ", segments,
                               " segments; expected at least one of each"));
  }
  segments = std::min(segments, static_cast<int64_t>(layers.size()));
  if (!c10::GradMode::is_enabled()) {
    return run_layers(layers, input);
  }
  std::vector<int64_t> sizes = options.segment_sizes;
  if (sizes.empty()) {
    sizes = options.balanced ? remembered_segments(layers, segments, input)
                             : equal_segments(static_cast<int64_t>(layers.size()), segments);
  }
  check_sizes(sizes, layers.size());
  at::Tensor x = input;
  auto next = layers.begin();
  for (size_t s = 0; s < sizes.size(); ++s) {
    std::vector<Layer> segment(next, next + sizes[s]);
    next += sizes[s];
    if (s + 1 == sizes.size()) {
      return run_layers(segment, x);
    }
    x = checkpoint(
        [segment = std::move(segment)](const at::Tensor& in) { return run_layers(segment, in); }, x,
        options.checkpoint);
  }
  return x;
}

}  // namespace remat
