#include "text/calls/translated_machine.h"

#include <fmt/format.h>

#include "base/error.h"
#include "text/calls/value_reader.h"

namespace ingot {
namespace {

constexpr size_t kMaxPlaces = 1 << 18, kMaxTranslatedRows = 1 << 12;
constexpr GrammarState kUnknown{UINT32_MAX, UINT32_MAX, UINT32_MAX};

}  // namespace

std::string TranslatedMachine::Place::key() const {
  return fmt::format("{} {} {} {} {} {} {} {} {}\n{}{}", json.place, json.frame, json.text, phase, flags, quote, at,
                     search.n_tokens, text.size(), text, search.held);
}

void TranslatedMachine::use_meter(const SharedMeter& meter) {
  meter_.share(meter);
  json_->use_meter(meter_);
}

void TranslatedMachine::spend(size_t n_steps) {
  meter_->spend(n_steps, "the names of a tool's parameters need too much work: name the parameters in \"properties\"");
}

size_t TranslatedMachine::n_bytes() const {
  constexpr size_t kEntry = 48 + sizeof(std::string);  // approximate bytes per entry of index_
  return json_->n_bytes() + n_text_bytes_ + places_.size() * (kEntry + sizeof(Place) + sizeof(rows_[0])) +
         with_rows_.size() * sizeof(*rows_[0]);
}

GrammarState TranslatedMachine::state_of(const Place& place) {
  const auto [entry, is_new] = index_.try_emplace(place.key(), static_cast<uint32_t>(places_.size()));
  if (is_new) {
    if (places_.size() >= kMaxPlaces)
      throw Error("the arguments of a call are too large: they need more than {} states", kMaxPlaces);
    places_.push_back(place);
    n_text_bytes_ += entry->first.size() + place.text.size() + place.search.held.size();
    rows_.emplace_back();
  }
  return {kFirst + entry->second, 0, place.json.text};
}

GrammarState TranslatedMachine::start() { return state_of(begin()); }

GrammarState TranslatedMachine::step(GrammarState state, uint8_t byte) {
  if (state.is_dead()) return {};
  const uint32_t id = state.place - kFirst;
  if (!rows_[id]) {
    if (with_rows_.size() >= kMaxTranslatedRows) {
      for (const uint32_t other : with_rows_) rows_[other].reset();
      with_rows_.clear();
    }
    rows_[id] = std::make_unique<std::array<GrammarState, 256>>();
    rows_[id]->fill(kUnknown);
    with_rows_.push_back(id);
  }
  GrammarState& next = (*rows_[id])[byte];
  if (next == kUnknown) {
    Place place = places_[id];
    const bool goes_on = read(place, static_cast<char>(byte));
    next = goes_on ? state_of(place) : GrammarState{};
    // Only the end is possible here, and only if the text repeats no other. A fresh state does not know.
    if (goes_on && next.text == kFreshText && !can_go_on(place)) next.text = kPastFresh;
  }
  return next;
}

bool TranslatedMachine::accepts(GrammarState state) {
  return !state.is_dead() && may_end(places_[state.place - kFirst]);
}

bool TranslatedMachine::can_go_on(const Place& place) {
  std::string held;
  append_json_escaped(held, place.search.held);
  Place copy;
  copy.json = place.json;
  if (place.search.n_tokens > 0 || !put(copy, held)) return false;
  const auto goes_on = [&](int byte) { return json_->step(copy.json, static_cast<uint8_t>(byte)).text == kFreshText; };
  for (int byte = 'a'; byte < 'a' + 256; ++byte)  // 'a' first, because most texts allow letters
    if (goes_on(byte % 256)) return true;
  return false;
}

GrammarState TranslatedMachine::fresh(GrammarState state) {
  Place place = places_[state.place - kFirst];
  place.json = json_->fresh(place.json);
  return state_of(place);
}

bool TranslatedMachine::put(Place& place, std::string_view json) {
  for (const char c : json) {
    place.json = json_->step(place.json, static_cast<uint8_t>(c));
    if (place.json.is_dead()) return false;
  }
  return true;
}

bool TranslatedMachine::can_put(const Place& place, std::string_view json) {
  Place copy;
  copy.json = place.json;
  return put(copy, json);
}

bool TranslatedMachine::can_close(const Place& place) {
  Place copy;
  copy.json = place.json;
  return put(copy, "}") && json_->accepts(copy.json);
}

}  // namespace ingot
