#include "text/tokenizers/merge_table.h"

#include "base/error.h"
#include "text/tokenizers/vocab.h"

namespace ingot {
namespace {

class MergeReader {
 public:
  MergeReader(const Vocab& vocab, const TokenizerSpec& spec) : vocab_(vocab), spec_(spec) {}

  void read(MergeTable& table) {
    for (size_t i = 0; i < spec_.merges.size(); ++i) {
      const std::string_view line = spec_.merges[i];
      const size_t space = line.find(' ');
      if (space == 0 || space == line.npos || space + 1 == line.size() || line.find(' ', space + 1) != line.npos)
        fail(i, "is not two tokens with one space between them");
      const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
      joined_.assign(left).append(right);
      const int32_t left_id = token(i, left), right_id = token(i, right);
      if (!table.insert(left_id, right_id, {static_cast<uint32_t>(i), token(i, joined_)})) fail(i, "occurs twice");
    }
  }

 private:
  int32_t token(size_t merge, std::string_view text) const {
    const auto id = vocab_.find(text);
    if (!id) fail(merge, fmt::format("names '{}', which is not in the vocabulary", printable(text, 64)).c_str());
    return *id;
  }
  [[noreturn]] void fail(size_t i, const char* what) const {
    throw Error("{}: tokenizer merges[{}] ('{}') {}", printable(spec_.source), i, printable(spec_.merges[i], 128),
                what);
  }

  const Vocab& vocab_;
  const TokenizerSpec& spec_;
  std::string joined_;
};

}  // namespace

MergeTable read_merges(const Vocab& vocab, const TokenizerSpec& spec) {
  MergeTable table(spec.merges.size());
  MergeReader(vocab, spec).read(table);
  return table;
}

}  // namespace ingot
