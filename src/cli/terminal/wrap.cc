#include "cli/terminal/wrap.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace ingot {
namespace {

// A byte that is no UTF-8 is shown as one column.
int columns_of(std::string_view one) {
  utf8proc_int32_t code = 0;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(one.data()),
                                  static_cast<utf8proc_ssize_t>(one.size()), &code);
  return n > 0 ? utf8proc_charwidth(code) : 1;
}

}  // namespace

int text_columns(std::string_view text) {
  int n = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = std::max<size_t>(1, utf8_step(text.substr(i)).length);
    n += columns_of(text.substr(i, length));
    i += length;
  }
  return n;
}

std::string_view within_columns(std::string_view text, int columns) {
  size_t end = 0;
  for (int n = 0; end < text.size();) {
    const size_t length = std::max<size_t>(1, utf8_step(text.substr(end)).length);
    n += columns_of(text.substr(end, length));
    if (n > columns) break;
    end += length;
  }
  return text.substr(0, end);
}

std::string WordWrap::add(std::string_view text) {
  width_ = width_of_();
  if (width_ <= 0) return std::string(text);
  const std::string whole = std::exchange(cut_, "") + std::string(text);
  for (size_t i = 0; i < whole.size();) {
    const std::string_view rest = std::string_view(whole).substr(i);
    const Utf8Step step = utf8_step(rest);
    if (step.cut) {
      cut_ = rest;
      break;
    }
    add_char(rest.substr(0, step.length));
    i += step.length;
  }
  return std::exchange(out_, "");
}

std::string WordWrap::finish() {
  word_ += std::exchange(cut_, "");
  place_word();
  out_ += std::exchange(spaces_, "");
  return std::exchange(out_, "");
}

void WordWrap::end_line() {
  place_word();
  out_ += std::exchange(spaces_, "") + "\n";
  column_ = n_ticks_ = 0;
  is_long_ = false;
}

void WordWrap::add_char(std::string_view bytes) {
  if (bytes == "\n") return end_line();
  if (n_ticks_ >= 0) n_ticks_ = bytes == "`" ? n_ticks_ + 1 : bytes == " " && n_ticks_ == 0 ? 0 : -1;
  if (n_ticks_ == 3) in_code_ = !in_code_;
  const int columns = columns_of(bytes);
  if (in_code_) {
    place_word();
    out_ += std::exchange(spaces_, "") + std::string(bytes);
    column_ += columns;
  } else if (bytes == " " || bytes == "\t") {
    place_word();
    spaces_ += bytes;
    is_long_ = false;
  } else if (is_long_ && columns < 2) {
    out_ += bytes;
    column_ = column_ % width_ + columns;
  } else {
    if (columns == 2) place_word();  // a line may end before and after it
    word_ += bytes, word_columns_ += columns;
    is_long_ = columns < 2 && word_columns_ >= width_;
    if (columns == 2 || is_long_) place_word();
  }
}

// Prints the word, on the next line if this line has no room.
void WordWrap::place_word() {
  if (word_.empty()) return;
  const int before = column_ + text_columns(spaces_);
  if (before + word_columns_ > width_ && column_ > 0) {
    out_ += '\n' + word_;
    column_ = word_columns_;
  } else {
    out_ += spaces_ + word_;
    column_ = before + word_columns_;
  }
  spaces_.clear(), word_.clear();
  word_columns_ = 0;
}

std::string cut_to_columns(std::string_view text, int columns) {
  if (text_columns(text) <= columns) return std::string(text);
  return std::string(within_columns(text, std::max(0, columns - 1))) + "…";
}

std::string list_row(std::string_view head, std::string_view text, int columns) {
  constexpr int kLeastText = 24, kNarrowIndent = 2;
  if (columns <= 0) return fmt::format("{}{}\n", head, text);
  const int begin = text_columns(head);
  const int indent = columns - begin >= kLeastText ? begin : std::min(kNarrowIndent, columns - 1);
  const int room = std::max(2, columns - indent);  // a wide character takes two
  WordWrap wrap([=] { return room; });
  std::string all = wrap.add(text);
  all += wrap.finish();
  std::string row(head);
  if (indent != begin) {
    row.erase(row.find_last_not_of(' ') + 1);
    row += "\n" + std::string(static_cast<size_t>(indent), ' ');
  }
  bool is_first = true;
  for (std::string_view left = all; !left.empty() || is_first;) {
    const std::string_view line = within_columns(left.substr(0, left.find('\n')), room);
    row += (is_first ? "" : std::string(static_cast<size_t>(indent), ' ')) + std::string(line) + "\n";
    left.remove_prefix(line.size());
    if (left.starts_with('\n')) left.remove_prefix(1);
    is_first = false;
  }
  return row;
}

}  // namespace ingot
