// SPDX-License-Identifier: Apache-2.0
#include "remat/report/table.h"

#include <gtest/gtest.h>

namespace remat {
namespace table_test {

TEST(Table, FirstColumnLeftTheOthersRight) {
  Table table({"strategy", "peak", "time"});
  table.add_row({"keep_all", "407 MiB", "3.97 s"});
  table.add_row({"mutwo", "9 MiB", "12.5 s"});
  EXPECT_EQ(table.text(),
            "strategy     peak    time\n"
            "keep_all  407 MiB  3.97 s\n"
            "mutwo       9 MiB  12.5 s\n");
}

TEST(Table, HeaderAlone) {
  EXPECT_EQ(Table({"a", "b"}).text(), "a  b\n");
  EXPECT_EQ(Table({"only"}).text(), "only\n");
}

TEST(Table, LinesEndWithTheirLastCharacter) {
  Table table({"name", "note"});
  table.add_row({"a"});
  table.add_row({});
  table.add_row({"", "x"});
  EXPECT_EQ(table.text(),
            "name  note\n"
            "a\n"
            "\n"
            "         x\n");
}

TEST(Table, CellsBeyondTheHeaderAreNotShown) {
  Table table({"a", "b"});
  table.add_row({"1", "2", "3"});
  EXPECT_EQ(table.text(),
            "a  b\n"
            "1  2\n");
}

// "µs" and "√n" take more bytes than columns.
TEST(Table, CountsColumnsNotBytes) {
  Table table({"k", "time"});
  table.add_row({"√n", "812 µs"});
  table.add_row({"n", "1 s"});
  EXPECT_EQ(table.text(),
            "k     time\n"
            "√n  812 µs\n"
            "n      1 s\n");
}

}  // namespace table_test
}  // namespace remat
