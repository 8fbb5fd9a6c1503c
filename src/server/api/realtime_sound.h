// The places where speech begins and ends, found while the sound of a realtime session comes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

struct TurnRules {
  double prefix_ms = 300;   // of sound before speech that belong to it
  double silence_ms = 500;  // after speech, before it has ended
  double quietest = -60;    // dBFS
};

// Finds the turns of a speaker. Times are samples of 16,000 a second since the beginning of the session.
class TurnFinder {
 public:
  struct Turn {
    bool begins = false;  // otherwise it ends
    int64_t at = 0;
    int64_t voice = 0;  // if it begins: its first sample of voice
  };
  // recent: the last samples, which end at `end`. Call it every 100 ms or more rarely.
  std::optional<Turn> find(std::span<const float> recent, int64_t end, const TurnRules& rules);
  bool is_speaking() const { return is_speaking_; }
  void reset(int64_t at) { is_speaking_ = false, silent_until_ = at; }
  void cut(int64_t at) { is_speaking_ = true, silent_until_ = at; }  // the turn ends, and the next one has begun

 private:
  bool is_speaking_ = false;
  int64_t silent_until_ = 0;  // speech before it is over
};

}  // namespace ingot
