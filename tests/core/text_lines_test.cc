// SPDX-License-Identifier: Apache-2.0
#include "remat/core/text_lines.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace remat::detail {
namespace text_lines_test {

using Words = std::vector<std::string_view>;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TextLines, ExcerptIsShortAndPrintable) {
  EXPECT_EQ(excerpt("relu"), "'relu'");
  EXPECT_EQ(excerpt(std::string_view("a\0\x7f\xff\n", 5)), "'a" + std::string(4, '?') + "'");
  EXPECT_EQ(excerpt(std::string(60, 'z')), "'" + std::string(60, 'z') + "'");
  EXPECT_EQ(excerpt(std::string(61, 'z')), "'" + std::string(60, 'z') + "...'");
}

TEST(TextLines, WordsStandBetweenBlanksAndTabs) {
  EXPECT_EQ(words_of("  op\ta  b \r"), (Words{"op", "a", "b"}));
  EXPECT_EQ(words_of(" \t\r"), Words{});
}

TEST(TextLines, ListsHaveNoEmptyElement) {
  EXPECT_EQ(list_of("a", "reads"), Words{"a"});
  EXPECT_EQ(list_of("a,b,c", "reads"), (Words{"a", "b", "c"}));
  for (const std::string text : {"", ",a", "a,", "a,,b"}) {
    const std::string message = error_of([&] { list_of(text, "reads"); });
    EXPECT_EQ(message.find("reads= has an empty element in '" + text + "'"), 0u) << message;
  }
}

TEST(TextLines, SplitsAtTheOnlyMark) {
  EXPECT_EQ(split_at("d<a", '<', "pair"), (std::pair<std::string_view, std::string_view>("d", "a")));
  EXPECT_EQ(split_at("<", '<', "pair").second, "");
  EXPECT_EQ(error_of([] { split_at("da", '<', "a pair"); }), "found 'da'; expected a pair");
  EXPECT_EQ(error_of([] { split_at("d<a<b", '<', "a pair"); }), "found 'd<a<b'; expected a pair");
}

TEST(TextLines, NumbersAreWholeAndNotNegative) {
  EXPECT_EQ(number_of("0", "bytes"), 0);
  EXPECT_EQ(number_of("9223372036854775807", "bytes"), std::numeric_limits<int64_t>::max());
  for (const char* text : {"-0", "-4", "+4", " 4", "4 ", "4.0", "0x4", "four"}) {
    EXPECT_NE(error_of([&] { number_of(text, "bytes"); }).find("expected a whole number"),
              std::string::npos)
        << text;
  }
  EXPECT_NE(error_of([] { number_of("9223372036854775808", "bytes"); }).find("64 bits"),
            std::string::npos);
}

TEST(TextLines, CallsForEachLineThatHoldsSomething) {
  std::vector<std::string> first_words;
  for_each_line("# comment\n\nhead 1\r\na x\n  # another\n\nb", "verb", "head 1",
                [&](const Words& words) { first_words.emplace_back(words[0]); });
  EXPECT_EQ(first_words, (std::vector<std::string>{"a", "b"}));
}

TEST(TextLines, ErrorsCarryTheVerbAndTheLine) {
  const auto parse = [](std::string_view text) {
    return error_of([&] {
      for_each_line(text, "verb", "head 1", [](const Words&) { throw Error("bad item"); });
    });
  };
  EXPECT_EQ(parse("head 1\n\n# comment\nitem\n"), "[verb] line 4: bad item");
  EXPECT_EQ(parse("head 2\n"), "[verb] line 1: found 'head 2'; expected the header 'head 1'");
  EXPECT_EQ(parse("# one line\n"), "[verb] line 2: nothing found; expected the header 'head 1'");
  EXPECT_EQ(parse("head 1\n"), "no error");
}

}  // namespace text_lines_test
}  // namespace remat::detail
