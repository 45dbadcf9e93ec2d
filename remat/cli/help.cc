// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/help.h"

#include <sstream>
#include <string>

namespace remat {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kLeftColumns = 24;

// Breaks lines between words. A line that is indented stays so.
std::string wrapped(const std::string& text, size_t columns) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!out.empty()) out += "\n";
    const size_t indent = line.find_first_not_of(' ');
    size_t used = 0;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (used > 0 && used + 1 + word.size() > columns) {
        out += "\n";
        used = 0;
      }
      const size_t gap = used > 0 ? 1 : indent;
      out += std::string(gap, ' ') + word;
      used += gap + word.size();
    }
  }
  return out;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kLeftColumns); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return {};
    const std::string type = option->get_type_name();
    return " " + type.substr(0, type.find(':'));
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string usual = option->get_default_str();
    return wrapped(option->get_description() + (usual.empty() ? "" : " [" + usual + "]"),
                   kColumns - kLeftColumns);
  }

  std::string make_footer(const CLI::App* app) const override {
    const std::string footer = app->get_footer();
    return footer.empty() ? "" : "\n" + wrapped(footer, kColumns) + "\n";
  }
};

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace remat
