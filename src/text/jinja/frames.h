// Finds the variables of the request that a block hides. jinja2 decides this when it compiles a template, not when the
// template runs. If a block assigns a name before it first reads the name, the name belongs to the block from its
// start. So inner blocks that read the name earlier find it undefined, even if the request has a variable with that
// name. The parser records loads and stores in their order; resolve_frames then follows jinja2's idtracking.py.
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
  std::vector<int>* hidden;  // the result, in the tree of the template
  std::vector<std::pair<Event, int>> events;
  std::unordered_set<int> known;  // names used in the frame
};

// A frame must come after the frames around it.
void resolve_frames(std::deque<Frame>& frames);

}  // namespace ingot::jinja
