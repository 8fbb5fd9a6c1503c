#include "model/devices/sample_message.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "model/devices/message.h"

namespace ingot {
namespace {

// Calls `one` with each number of the parameters, and `list` with each list. A new field of SamplingParams does not
// compile until this function names the field.
template <class Params, class One, class List>
void each_field(Params& params, One&& one, List&& list) {
  auto& [temperature, top_k, typical_p, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty,
         penalty_window, dry_multiplier, dry_base, dry_allowed_length, dry_window, dry_breakers, top_n_sigma,
         xtc_probability, xtc_threshold, dynatemp_range, dynatemp_exponent, mirostat, mirostat_tau, mirostat_eta,
         stages, seed, logit_bias, n_logprobs, n_candidates] = params;
  one(temperature), one(top_k), one(typical_p), one(top_p), one(min_p);
  one(repetition_penalty), one(presence_penalty), one(frequency_penalty), one(penalty_window);
  one(dry_multiplier), one(dry_base), one(dry_allowed_length), one(dry_window);
  one(top_n_sigma), one(xtc_probability), one(xtc_threshold), one(dynatemp_range), one(dynatemp_exponent);
  one(mirostat), one(mirostat_tau), one(mirostat_eta), one(seed), one(n_logprobs), one(n_candidates);
  list(dry_breakers), list(stages), list(logit_bias);
}

struct Bias {
  int32_t token;
  float value;
};

void add_params(MessageWriter& message, const SamplingParams& params) {
  struct {
    MessageWriter& to;
    void operator()(const std::shared_ptr<const std::vector<uint32_t>>& bits) {
      to.add(bits ? std::span<const uint32_t>(*bits) : std::span<const uint32_t>());
    }
    void operator()(const std::vector<SamplerStage>& stages) { to.add(std::span<const SamplerStage>(stages)); }
    void operator()(const std::vector<std::pair<int32_t, float>>& biases) {
      std::vector<Bias> plain;
      for (const auto& [token, value] : biases) plain.push_back({token, value});
      to.add(std::span<const Bias>(plain));
    }
  } list{message};
  each_field(
      params, [&](const auto& number) { message.add_one(number); }, list);
}

SamplingParams next_params(MessageReader& message) {
  struct {
    MessageReader& from;
    void operator()(std::shared_ptr<const std::vector<uint32_t>>& bits) {
      auto words = from.next<uint32_t>();
      if (!words.empty()) bits = std::make_shared<const std::vector<uint32_t>>(std::move(words));
    }
    void operator()(std::vector<SamplerStage>& stages) { stages = from.next<SamplerStage>(); }
    void operator()(std::vector<std::pair<int32_t, float>>& biases) {
      for (const Bias& bias : from.next<Bias>()) biases.emplace_back(bias.token, bias.value);
    }
  } list{message};
  SamplingParams params;
  each_field(
      params, [&]<class T>(T& number) { number = message.next_one<T>(); }, list);
  return params;
}

// The tokens at the end of the history that the penalties and DRY read.
std::span<const int32_t> history_read(const SampleRow& row) {
  const SamplingParams& p = *row.params;
  const auto length = [](int window) {
    return window < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(window);
  };
  const bool has_penalties = p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  size_t n = has_penalties ? length(p.penalty_window) : 0;
  if (p.dry_multiplier != 0) n = std::max(n, length(p.dry_window));
  return row.history.last(std::min(n, row.history.size()));
}

}  // namespace

std::vector<uint8_t> message_of(std::span<const SampleRow> rows, int n_vocab) {
  const size_t n_words = (static_cast<size_t>(n_vocab) + 31) / 32;
  MessageWriter message;
  message.add_one<uint64_t>(rows.size());
  for (const SampleRow& row : rows) {
    add_params(message, *row.params);
    message.add_one(row.position);
    message.add(history_read(row));
    message.add(std::span(row.mask, row.mask != nullptr ? n_words : 0));
    message.add_one<uint8_t>(row.unwanted ? 1 : 0);
    message.add(std::span<const float>(row.mirostat_mu, row.mirostat_mu != nullptr ? 1 : 0));
  }
  return std::move(message.bytes);
}

ReceivedRows::ReceivedRows(std::span<const uint8_t> message, int n_vocab) {
  MessageReader parts(message);
  const auto n = parts.next_one<uint64_t>();
  for (size_t i = 0; i < n; ++i) {
    Held& held = held_.emplace_back();
    held.params = next_params(parts);
    SampleRow row{.params = &held.params, .position = parts.next_one<int64_t>(), .history = {}};
    row.history = held.history = parts.next<int32_t>();
    held.mask = parts.next<uint32_t>();
    CHECK(held.mask.empty() || held.mask.size() == (static_cast<size_t>(n_vocab) + 31) / 32);
    if (!held.mask.empty()) row.mask = held.mask.data();
    row.unwanted = parts.next_one<uint8_t>() != 0;
    held.mu = parts.next<float>();
    if (!held.mu.empty()) row.mirostat_mu = held.mu.data();
    rows.push_back(row);
  }
}

std::vector<uint8_t> message_of(std::span<const Sampled> drawn, std::span<const SampleRow> rows) {
  CHECK_EQ(drawn.size(), rows.size());
  MessageWriter message;
  for (size_t i = 0; i < rows.size(); ++i) {
    message.add_one(drawn[i].token);
    message.add_one(drawn[i].logprob);
    message.add(std::span<const TokenLogprob>(drawn[i].top));
    message.add_one(rows[i].mirostat_mu != nullptr ? *rows[i].mirostat_mu : 0.0f);
  }
  return std::move(message.bytes);
}

std::vector<Sampled> read_draws(std::span<const uint8_t> message, std::span<const SampleRow> rows) {
  MessageReader parts(message);
  std::vector<Sampled> drawn(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    drawn[i].token = parts.next_one<int32_t>();
    drawn[i].logprob = parts.next_one<float>();
    drawn[i].top = parts.next<TokenLogprob>();
    const auto mu = parts.next_one<float>();
    if (rows[i].mirostat_mu != nullptr) *rows[i].mirostat_mu = mu;
  }
  return drawn;
}

}  // namespace ingot
