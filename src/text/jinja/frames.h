// Which variables of the request a block hides. jinja2 decides when it compiles a template, not when it runs: a name
// that a block assigns before it first reads it is the block's own from its start, so blocks inside that read it
// earlier find it undefined even if the request has a variable of that name. The parser notes loads and stores as it
// meets them; resolve_frames then follows jinja2's idtracking.py.
#pragma once
#include <deque>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ingot::jinja {

struct Frame {
  enum class Event { kLoad, kStore, kParam, kIf, kNextBranch, kEndIf };  // kIf opens the first branch

  Frame(const Frame* outer, std::vector<int>* hides) : parent(outer), hidden(hides) {}
  void load(int id) { events.push_back({Event::kLoad, id}); }
  void store(int id) { events.push_back({Event::kStore, id}); }
  void param(int id) { events.push_back({Event::kParam, id}); }
  void branch(Event event) { events.push_back({event, 0}); }

  const Frame* parent;
  std::vector<int>* hidden;  // where the answer goes, in the tree of the template
  std::vector<std::pair<Event, int>> events;
  std::unordered_set<int> known;  // names that it refers to
};

// Frames stand behind the frames around them.
void resolve_frames(std::deque<Frame>& frames);

}  // namespace ingot::jinja
