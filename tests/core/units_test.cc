// SPDX-License-Identifier: Apache-2.0
#include "remat/core/units.h"

#include <gtest/gtest.h>

#include <string>

#include "remat/core/error.h"

namespace remat {
namespace units_test {

TEST(FormatBytes, TakesTheLargestUnitThatIsNotMore) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1), "1 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(KiB), "1 KiB");
  EXPECT_EQ(format_bytes(KiB + KiB / 2), "1.5 KiB");
  EXPECT_EQ(format_bytes(730 * MiB), "730 MiB");
  EXPECT_EQ(format_bytes(3 * GiB / 2), "1.5 GiB");
  EXPECT_EQ(format_bytes(2048 * GiB), "2 TiB");
  EXPECT_EQ(format_bytes((int64_t{1} << 53) - 1), "8192 TiB");
}

TEST(FormatBytes, GivesThreeDigitsAndNoIdleZeros) {
  EXPECT_EQ(format_bytes(1029), "1 KiB");
  EXPECT_EQ(format_bytes(1030), "1.01 KiB");
  EXPECT_EQ(format_bytes(10 * KiB + 512), "10.5 KiB");
  EXPECT_EQ(format_bytes(100 * KiB + 511), "100 KiB");
  // 9.996 and 99.96 round up to one digit more, not to 10.00 and 100.0.
  EXPECT_EQ(format_bytes(10236), "10 KiB");
  EXPECT_EQ(format_bytes(102359), "100 KiB");
}

TEST(FormatBytes, DoesNotRoundIntoTheNextUnit) {
  EXPECT_EQ(format_bytes(MiB - 1), "1024 KiB");
  EXPECT_EQ(format_bytes(GiB - 1), "1024 MiB");
}

TEST(FormatNs, TakesTheLargestUnitThatIsNotMore) {
  EXPECT_EQ(format_ns(0), "0 ns");
  EXPECT_EQ(format_ns(812), "812 ns");
  EXPECT_EQ(format_ns(1'000), "1 us");
  EXPECT_EQ(format_ns(1'250'000), "1.25 ms");
  EXPECT_EQ(format_ns(3'400'000'000), "3.4 s");
  EXPECT_EQ(format_ns(999'999), "1000 us");
  EXPECT_EQ(format_ns(7'200'000'000'000), "7200 s");
}

TEST(ParseBudget, ReadsEveryUnit) {
  EXPECT_EQ(parse_budget("4096", 0), 4096);
  EXPECT_EQ(parse_budget("4096B", 0), 4096);
  EXPECT_EQ(parse_budget("2KB", 0), 2'000);
  EXPECT_EQ(parse_budget("800MB", 0), 800'000'000);
  EXPECT_EQ(parse_budget("1GB", 0), 1'000'000'000);
  EXPECT_EQ(parse_budget("1TB", 0), 1'000'000'000'000);
  EXPECT_EQ(parse_budget("2KiB", 0), 2 * KiB);
  EXPECT_EQ(parse_budget("3MiB", 0), 3 * MiB);
  EXPECT_EQ(parse_budget("1.5GiB", 0), 3 * GiB / 2);
  EXPECT_EQ(parse_budget("0.5TiB", 0), 512 * GiB);
  EXPECT_EQ(parse_budget(".5 GiB", 0), GiB / 2);
  EXPECT_EQ(parse_budget("0", 0), 0);
}

TEST(ParseBudget, KeepsEveryDigitOfPlainBytes) {
  // One more than 2^53: a double would lose it.
  EXPECT_EQ(parse_budget("9007199254740993", 0), 9007199254740993);
}

TEST(ParseBudget, ReadsSharesOfTheWhole) {
  EXPECT_EQ(parse_budget("50%", 1000), 500);
  EXPECT_EQ(parse_budget("0%", 1000), 0);
  EXPECT_EQ(parse_budget("100%", 1001), 1001);
  EXPECT_EQ(parse_budget("12.5 %", 1000), 125);
  EXPECT_EQ(parse_budget("200%", 1000), 2000);
}

// 0.29 * 100 is 28.999999999999996: 29% of 100 bytes came out as 28.
TEST(ParseBudget, WholeShareOfAWholeNumberIsExact) {
  for (int64_t share = 0; share <= 100; ++share) {
    EXPECT_EQ(parse_budget(std::to_string(share) + "%", 100), share);
    EXPECT_EQ(parse_budget(std::to_string(share) + "%", 100 * GiB), share * GiB);
  }
}

TEST(ParseBudget, RoundsDown) {
  EXPECT_EQ(parse_budget("0.1KiB", 0), 102);  // 102.4
  EXPECT_EQ(parse_budget("1.9B", 0), 1);
  EXPECT_EQ(parse_budget("33%", 10), 3);  // 3.3
}

TEST(ParseBudget, RefusesTheRest) {
  for (const std::string text : {"",
                                 " ",
                                 "-5",
                                 "-0",
                                 "+5",
                                 "abc",
                                 "%",
                                 "GiB",
                                 "50%%",
                                 "50% ",
                                 "5GiB ",
                                 " 5",
                                 "1e3",
                                 "1e400",
                                 "nan",
                                 "inf",
                                 "0x10",
                                 "1.5.5",
                                 "1,5",
                                 "5gib",
                                 "5 gallons",
                                 "99999999999999999999",
                                 "9223372036854775808",
                                 "8388608TiB",
                                 "99999999999999%"}) {
    try {
      const int64_t bytes = parse_budget(text, int64_t{1} << 53);
      ADD_FAILURE() << "'" << text << "' is " << bytes;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("is not a budget; expected bytes with a unit"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(ParseBudget, ReadsWhatFormatBytesWrites) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, KiB, 3 * MiB / 2, 730 * MiB, 64 * GiB}) {
    EXPECT_EQ(parse_budget(format_bytes(bytes), 0), bytes);
  }
}

}  // namespace units_test
}  // namespace remat
