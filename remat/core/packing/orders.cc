// SPDX-License-Identifier: Apache-2.0
#include "remat/core/packing/orders.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

namespace remat::detail {
namespace {

// The largest of any range of a fixed row of numbers, in constant time: maxima of all ranges whose
// length is a power of two, two of which cover any range.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::vector<int64_t> row) : maxima_{std::move(row)} {
    const size_t count = maxima_.front().size();
    for (size_t width = 1; 2 * width <= count; width *= 2) {
      const std::vector<int64_t>& narrow = maxima_.back();
      std::vector<int64_t> wide(count - 2 * width + 1);
      for (size_t t = 0; t < wide.size(); ++t) wide[t] = std::max(narrow[t], narrow[t + width]);
      maxima_.push_back(std::move(wide));
    }
  }

  int64_t of(int64_t first, int64_t last) const {
    const size_t length = static_cast<size_t>(last - first + 1);
    const size_t k = static_cast<size_t>(std::bit_width(length)) - 1;
    const size_t second = static_cast<size_t>(last) + 1 - (size_t{1} << k);
    return std::max(maxima_[k][static_cast<size_t>(first)], maxima_[k][second]);
  }

 private:
  std::vector<std::vector<int64_t>> maxima_;  // by the logarithm of the length, then by first tick
};

}  // namespace

std::span<const GreedyOrder> first_fit_orders(size_t item_count) {
  using enum GreedyOrder;
  constexpr size_t kLarge = 20'000, kWithoutHoles = 10;
  static constexpr GreedyOrder kOrders[] = {load_length, load_size, size_start, load_area,
                                            peak_length, peak_last, peak_first, peak_size,
                                            start,       end,       area,       length};
  return std::span(kOrders).first(item_count > kLarge ? kWithoutHoles : std::size(kOrders));
}

GreedyOrders::GreedyOrders(const PackingProblem& problem) : traits_(problem.item_count()) {
  const int64_t peak = problem.fullest_tick();
  const RangeMaximum largest_load(problem.load());
  for (size_t i = 0; i < traits_.size(); ++i) {
    Traits& item = traits_[i];
    item.size = problem.size(i);
    item.area = problem.area(i);
    item.first = problem.first_tick(i);
    item.last = problem.last_tick(i);
    item.length = item.last - item.first + 1;
    item.load = largest_load.of(item.first, item.last);
    item.peak_margin = std::max<int64_t>(0, std::min(peak - item.first, item.last - peak));
    item.peak_distance = std::max<int64_t>({0, item.first - peak, peak - item.last});
  }
}

template <typename Key>
ItemOrder GreedyOrders::sorted_by(const Key& key) const {
  ItemOrder order(traits_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return key(traits_[static_cast<size_t>(a)]) < key(traits_[static_cast<size_t>(b)]);
  });
  return order;
}

ItemOrder GreedyOrders::sorted(GreedyOrder by) const {
  using T = const Traits&;
  switch (by) {
    case GreedyOrder::load_length:
      return sorted_by([](T t) { return std::tuple(-t.load, -t.length, t.first); });
    case GreedyOrder::load_size:
      return sorted_by([](T t) { return std::tuple(-t.load, -t.size, t.first); });
    case GreedyOrder::size_start:
      return sorted_by([](T t) { return std::tuple(-t.size, t.first); });
    case GreedyOrder::load_area:
      return sorted_by([](T t) { return std::tuple(-t.load, -t.area, t.first); });
    case GreedyOrder::peak_length:
      return sorted_by([](T t) { return std::tuple(t.peak_distance, -t.length); });
    case GreedyOrder::peak_last:
      return sorted_by([](T t) { return std::tuple(t.peak_distance, -t.last); });
    case GreedyOrder::peak_first:
      return sorted_by([](T t) { return std::tuple(t.peak_distance, t.first); });
    case GreedyOrder::peak_size:
      return sorted_by([](T t) { return std::tuple(t.peak_distance, -t.size); });
    case GreedyOrder::start: return sorted_by([](T t) { return std::tuple(t.first, -t.length); });
    case GreedyOrder::end: return sorted_by([](T t) { return std::tuple(-t.last, -t.length); });
    case GreedyOrder::area: return sorted_by([](T t) { return std::tuple(-t.area, t.first); });
    case GreedyOrder::peak_inside:
      return sorted_by(
          [](T t) { return std::tuple(t.peak_distance, -t.peak_margin, -t.length, t.first); });
    case GreedyOrder::length: return sorted_by([](T t) { return std::tuple(-t.length, -t.size); });
  }
  return {};
}

}  // namespace remat::detail
