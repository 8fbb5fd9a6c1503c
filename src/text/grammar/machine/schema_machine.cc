#include "text/grammar/machine/schema_machine.h"

#include <algorithm>

#include "base/error.h"
#include "text/grammar/machine/layout.h"

namespace ingot {

namespace {

// The bytes that may come between words or begin a word.
constexpr std::array<bool, 256> kStaysBetween = [] {
  std::array<bool, 256> table{};
  for (char c : std::string_view(" \n\t\"{}[],:-0123456789tfn")) table[static_cast<uint8_t>(c)] = true;
  return table;
}();

}  // namespace

SchemaMachine::SchemaMachine(std::unique_ptr<SchemaTable> table, MachineOptions options)
    : table_(std::move(table)), options_(options), languages_(table_->languages), formulas_(table_->formulas) {
  meter_.share(languages_.meter());
  frames_.intern({});
  const uint32_t plan = value_plan({formulas_.leaf(table_->root)}, formulas_.leaf(0));
  try {
    if (!is_possible(plan)) throw Error("the schema allows no value at all");
  } catch (const TooMuchWork& error) {
    throw Error("{}: {}", where_is(last_searched_), error.what());
  }
  const uint32_t slot[] = {kSlot, 0, plan, 0};
  root_slot_ = frames_.intern(slot);
}

void SchemaMachine::use_meter(const SharedMeter& meter) {
  meter_.share(meter);
  languages_.use_meter(meter_);
}

std::string_view SchemaMachine::where_is(uint32_t plan) const {
  const ValuePlan& value = values_[plan];
  const auto of = [](const auto& rules, const std::vector<int>& numbers) -> std::string_view {
    for (const int number : numbers)
      if (!rules[number].where.empty()) return rules[number].where;
    return kNowhere;
  };
  if (value.object >= 0) return of(table_->objects, objects_[value.object]->rules);
  if (value.array >= 0) return of(table_->arrays, arrays_[value.array]->rules);
  return kNowhere;
}

std::string SchemaMachine::where(GrammarState state) const {
  const std::span<const uint32_t> frame = frames_[state.frame];
  if (frame.empty()) return std::string(kNowhere);
  if (frame[0] == kSlot) return std::string(where_is(frame[kSlotPlan]));
  const auto holds = [&](const ValuePlan& value) {
    return frame[0] == kObject ? value.object == static_cast<int>(frame[kObjectPlan])
                               : value.array == static_cast<int>(frame[kArrayPlan]);
  };
  const auto plan = std::ranges::find_if(values_, holds);
  return std::string(plan == values_.end() ? kNowhere : where_is(static_cast<uint32_t>(plan - values_.begin())));
}

size_t SchemaMachine::n_bytes() const {
  constexpr size_t kEntry = 64;  // approximate bytes per hash table entry
  size_t n = languages_.n_bytes() + frames_.n_bytes() + words_.n_bytes() + value_index_.n_bytes() +
             values_.size() * sizeof(ValuePlan) +
             (steps_.size() + word_ends_.size() + typed_.size() + typed_languages_.size() + set_of_frame_.size() +
              2 * texts_.size()) *
                 kEntry;
  n += n_rows_ * 256 * sizeof(uint32_t);
  for (const auto& set : name_sets_) n += sizeof(NameSet) + set->below.size() * 2 * sizeof(uint32_t);
  return n;
}

GrammarState SchemaMachine::start() { return {kValue, root_slot_, 0}; }

bool SchemaMachine::accepts(GrammarState state) {
  if (!is_word(state.place)) return state.place == kDone;
  const auto word = words_[state.place - kFirstWord];
  return word[0] == kBare && frames_[state.frame][kSlotParent] == 0 && languages_.has_empty(word[kAlive]);
}

GrammarState SchemaMachine::step(GrammarState state, uint8_t byte) {
  if (!is_word(state.place)) return step_between(state, byte);
  const uint32_t next = word_row(state.place)[byte];
  if (next == kDead) return {};
  if (next == kWordOver) {
    const GrammarState over = end_word(state);
    return over.is_dead() ? over : step_between(over, byte);
  }
  if (state.text != 0) state.text = add_text(state.text, byte);
  if (next == kWordEnds) return end_word(state);
  return {next, state.frame, state.text};
}

GrammarState SchemaMachine::step_between(GrammarState state, uint8_t byte) {
  if (!kStaysBetween[byte]) return {};
  if (state.text > kPastFresh) return find_step(state, byte);
  const uint64_t key = uint64_t{state.frame} << 32 | state.place << 10 | state.text << 8 | byte;
  if (const auto it = steps_.find(key); it != steps_.end()) return it->second;
  const GrammarState next = find_step(state, byte);
  if (next.text <= kPastFresh) steps_[key] = next;
  return next;
}

// Allows the usual layouts of JSON: no white space, one space, or a line end followed by a limited number of blanks.
uint32_t SchemaMachine::add_blank(GrammarState state, uint8_t byte) {
  const uint32_t kind = state.place % kPlaceKinds, n = state.place / kPlaceKinds;
  if (options_.is_compact || kind == kColon || kind == kDone || (kind == kValue && state.frame == root_slot_))
    return kPlaceDead;
  if (kind == kAfterValue) {  // white space here must precede the end of the object or array
    const bool is_object = frames_[state.frame][0] == kObject;
    if ((is_object ? close_object(state.frame, state.text) : close_array(state.frame, state.text)).is_dead())
      return kPlaceDead;
  }
  if (n == 0) return byte == ' ' ? kind + kPlaceKinds : byte == '\n' ? kind + 2 * kPlaceKinds : uint32_t{kPlaceDead};
  return n > 1 && n <= std::min(options_.max_blanks, kMaxBlanks) && byte != '\n' ? kind + (n + 1) * kPlaceKinds
                                                                                 : uint32_t{kPlaceDead};
}

GrammarState SchemaMachine::find_step(GrammarState state, uint8_t byte) {
  if (state.is_dead() || state.place % kPlaceKinds == kDone) return {};  // these places have no frame
  const uint32_t before = state.text;
  if (state.text != 0) state.text = add_text(state.text, byte);
  if (byte == ' ' || byte == '\n' || byte == '\t') return {add_blank(state, byte), state.frame, state.text};
  const bool is_object = frames_[state.frame][0] == kObject;
  const auto begin_item = [&]() -> GrammarState {
    const Words frame = frames_.copy(state.frame);
    const bool is_unique = arrays_[frame[kArrayPlan]]->is_unique;
    const uint32_t from = !is_unique ? 0 : before == 0 ? kFirstText : before;
    const uint32_t slot = enter_item(state.frame, from);
    if (slot == 0) return {};
    return begin_value(slot, byte, is_unique && before == 0 ? add_text(from, byte) : state.text);
  };
  switch (state.place % kPlaceKinds) {
    case kValue: return begin_value(state.frame, byte, state.text);
    case kFirstItem:
      if (byte == ']') return close_array(state.frame, state.text);
      return begin_item();
    case kNextItem: return begin_item();
    case kFirstName:
      if (byte == '}') return close_object(state.frame, state.text);
      [[fallthrough]];
    case kNextName: {
      if (byte != '"') return {};
      const uint32_t place = begin_name(state.frame);
      if (place == kDead || !objects_[frames_[state.frame][kObjectPlan]]->tracks_names)
        return {place, state.frame, state.text};
      Words frame = frames_.copy(state.frame);
      if (state.text == 0) state.text = kFirstText;
      frame[kNameText] = state.text;
      return {place, frames_.intern(frame), state.text};
    }
    case kColon: return byte == ':' ? GrammarState{kValue, state.frame, state.text} : GrammarState{};
    case kAfterValue: {
      const bool has_blanks = state.place >= kPlaceKinds;
      if (byte == '}' && is_object) return close_object(state.frame, state.text);
      if (byte == ']' && !is_object) return close_array(state.frame, state.text);
      if (byte != ',' || has_blanks) return {};
      if (is_object)
        return {name_set(state.frame).any ? uint32_t{kNextName} : uint32_t{kPlaceDead}, state.frame, state.text};
      return {enter_item(state.frame, 0) != 0 ? uint32_t{kNextItem} : uint32_t{kPlaceDead}, state.frame, state.text};
    }
    default: return {};
  }
}

// ---- Texts that a rule needs

uint32_t SchemaMachine::add_text(uint32_t text, uint8_t byte) {
  if (text == kFreshText || text == kPastFresh) return text;
  const auto [it, is_new] = text_index_.try_emplace(uint64_t{text} << 8 | byte, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back({text, byte});
  if (texts_.size() > kMaxTexts) throw Error("the items of an array with uniqueItems are too long");
  return it->second;
}

std::string SchemaMachine::text_between(uint32_t from, uint32_t to) const {
  std::string text;
  for (; to != from && to > kPastFresh; to = texts_[to].first) text += static_cast<char>(texts_[to].second);
  std::ranges::reverse(text);
  return text;
}

std::unique_ptr<SchemaMachine> compile_schema(std::string_view json, const SchemaOptions& schema,
                                              const MachineOptions& options) {
  auto table = std::make_unique<SchemaTable>();
  table->languages.meter()->limit(WorkMeter::kMaxCompileWork);
  read_schema(json, schema, *table);
  auto machine = std::make_unique<SchemaMachine>(std::move(table), options);
  machine->meter().limit(SIZE_MAX);
  return machine;
}

}  // namespace ingot
