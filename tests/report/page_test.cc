// SPDX-License-Identifier: Apache-2.0
#include "remat/report/page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "remat/core/error.h"

namespace remat {
namespace page_test {

// Whatever can end a script element, a string, a comment or a line, and bytes that are no UTF-8.
const std::string kNasty = "</script><script>alert(1)</script><!-- ' \" \\ & \xE2\x80\xA8 \xC3\xA9 \xFF";

std::string data_in(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Page, HoldsItsDataAsTheyAre) {
  const nlohmann::json data = {{"bytes", 12}, {"name", "a<b>&c</script>"}, {"list", {1, 2.5, nullptr}}};
  EXPECT_EQ(nlohmann::json::parse(data_in(page_html("profile", "t", data))), data);
}

TEST(Page, NothingInANameEndsAnElement) {
  const std::string plain = page_html("profile", "t", {{"name", "x"}});
  const std::string page = page_html("profile", kNasty, {{"name", kNasty}, {kNasty, 1}});
  EXPECT_EQ(count(page, "<script"), count(plain, "<script"));
  EXPECT_EQ(count(page, "</script"), count(plain, "</script"));
  EXPECT_EQ(count(page, "<!--"), 0u);
  EXPECT_NE(page.find("<title>&lt;/script&gt;"), std::string::npos);
  for (const char c : data_in(page)) {
    EXPECT_TRUE(static_cast<unsigned char>(c) < 0x80 && c != '<' && c != '>' && c != '&') << c;
  }
  const nlohmann::json read = nlohmann::json::parse(data_in(page));
  EXPECT_NE(read.at("name").get<std::string>().find("\xE2\x80\xA8 \xC3\xA9 \xEF\xBF\xBD"), std::string::npos)
      << "what is no UTF-8 becomes the replacement character, the rest stays";
}

TEST(Page, AsksForNothing) {
  const std::string page = page_html("profile", "t", nlohmann::json::object());
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* loads : {"src=", "@import", "url(", "fetch("}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
}

TEST(Page, SaysWhoseTheChartsAre) {
  const std::string page = page_html("profile", "t", nlohmann::json::object());
  EXPECT_NE(page.find("The MIT License"), std::string::npos);
  EXPECT_NE(page.find("Leon Sorokin"), std::string::npos);
}

TEST(SavePage, ReplacesAFile) {
  const std::string path = ::testing::TempDir() + "/page_test.html";
  save_page("a long page", path);
  save_page("short", path);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "short");
}

TEST(SavePage, SaysWhatCannotBeWritten) {
  try {
    save_page("page", "/nowhere/page.html");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[save_html] cannot write /nowhere/page.html: No such file or directory");
  }
  EXPECT_THROW(save_page(std::string(1 << 20, 'x'), "/dev/full"), Error);
}

}  // namespace page_test
}  // namespace remat
