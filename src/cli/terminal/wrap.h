// Breaks streamed text between words at the edge of a terminal, also before a wide character of Chinese, Japanese or
// Korean. Words that are wider than a line, and code between lines of ```, stay as they are.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace ingot {

// The number of columns of a text on a terminal, without control characters.
int text_columns(std::string_view text);
// The beginning of a text that takes at most this many columns.
std::string_view within_columns(std::string_view text, int columns);
// The text, or its beginning and an ellipsis if it takes more columns.
std::string cut_to_columns(std::string_view text, int columns);
// A row of a list: `head`, and the text in lines of whole words, which begin below each other. Words that are wider
// than a line are divided. columns: the terminal's; 0: one line.
std::string list_row(std::string_view head, std::string_view text, int columns);

class WordWrap {
 public:
  // width: the terminal's columns now; 0: nothing is broken. Asked for each piece, because terminals change their size.
  explicit WordWrap(std::function<int()> width) : width_of_(std::move(width)) {}

  // Returns what to print now. A word is held back until its end, which decides its line.
  std::string add(std::string_view text);
  std::string finish();  // the rest

 private:
  void add_char(std::string_view bytes);
  void end_line();
  void place_word();

  const std::function<int()> width_of_;
  int width_ = 0;
  std::string out_, word_, spaces_;  // out_: of this call. word_ and spaces_ before it: not printed yet
  std::string cut_;                  // a character's first bytes
  int word_columns_ = 0;
  int column_ = 0;
  int n_ticks_ = 0;  // ` at the start of the line; -1: other characters have followed
  bool in_code_ = false;
  bool is_long_ = false;  // the printed word is wider than a line, and the terminal breaks it
};

}  // namespace ingot
