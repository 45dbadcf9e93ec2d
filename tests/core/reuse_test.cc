// SPDX-License-Identifier: Apache-2.0
#include "remat/core/reuse.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

namespace remat {
namespace reuse_test {

struct Pair {
  char result;
  char source;
  bool operator==(const Pair&) const = default;
};

// The pairs that are taken where only these sources end.
std::vector<Pair> taken(const std::vector<Pair>& pairs, const std::string& ending) {
  std::vector<Pair> result = {{'?', '?'}};  // of the op before: to be forgotten
  take_places(
      std::span(pairs),
      [&](const Pair& pair) { return ending.find(pair.source) != std::string::npos; }, result);
  return result;
}

TEST(Reuse, TakesThePlaceOfASourceThatEndsOnly) {
  EXPECT_EQ(taken({{'d', 'a'}}, "a"), (std::vector<Pair>{{'d', 'a'}}));
  EXPECT_EQ(taken({{'d', 'a'}}, "b"), (std::vector<Pair>{}));
  EXPECT_EQ(taken({}, "a"), (std::vector<Pair>{}));
}

TEST(Reuse, GivesAResultTheFirstPlaceThatIsFree) {
  EXPECT_EQ(taken({{'d', 'a'}, {'d', 'b'}}, "ab"), (std::vector<Pair>{{'d', 'a'}}));
  EXPECT_EQ(taken({{'d', 'a'}, {'d', 'b'}}, "b"), (std::vector<Pair>{{'d', 'b'}}));
}

TEST(Reuse, GivesAPlaceToTheFirstResultThatMayTakeIt) {
  EXPECT_EQ(taken({{'d', 'a'}, {'e', 'a'}}, "a"), (std::vector<Pair>{{'d', 'a'}}));
  // e finds a taken, and b free.
  EXPECT_EQ(taken({{'d', 'a'}, {'e', 'a'}, {'e', 'b'}}, "ab"),
            (std::vector<Pair>{{'d', 'a'}, {'e', 'b'}}));
}

TEST(Reuse, SharesWhatTheSmallerOfTheTwoHas) {
  EXPECT_EQ(shared_bytes(8, 12), 8);
  EXPECT_EQ(shared_bytes(12, 8), 8);
}

}  // namespace reuse_test
}  // namespace remat
