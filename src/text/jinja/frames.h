// Finds the variables of the request that a block hides. jinja2 decides this when it compiles a template, not when the
// template runs. If a block assigns a name before it first reads the name, the name belongs to the block from its
// start. So inner blocks that read the name earlier find it undefined, even if the request has a variable with that
// name. The parser records loads and stores in their order; resolve_frames then follows jinja2's idtracking.py.
#pragma once
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ingot::jinja {

struct Frame {
  enum class Event { kLoad, kStore, kParam, kIf, kNextBranch, kEndIf };  // kIf opens the first branch

  Frame(const Frame* outer, std::vector<int>* hides) : parent(outer), hidden(hides) {}
  void add(Event event, int id = 0) { events.push_back({event, id}); }

  const Frame* parent;
  std::vector<int>* hidden;  // the result, in the tree of the template
  std::vector<std::pair<Event, int>> events;
  std::unordered_set<int> known;  // names used in the frame
};

class FrameResolver {
 public:
  explicit FrameResolver(Frame& frame) : frame_(frame), layers_(1) {}

  void run() {
    for (const auto& [event, id] : frame_.events) {
      switch (event) {
        case Frame::Event::kLoad:
          if (!is_outer(id) && !has(id)) top().hides[id] = false;
          break;
        case Frame::Event::kStore:
          if (!has(id)) top().hides[id] = !is_outer(id);
          top().stores.insert(id);
          break;
        case Frame::Event::kParam:
          top().hides[id] = false;
          top().stores.insert(id);
          break;
        case Frame::Event::kIf:
          finished_.emplace_back();
          layers_.emplace_back();
          break;
        case Frame::Event::kNextBranch: finished_.back().push_back(std::exchange(top(), Layer())); break;
        case Frame::Event::kEndIf: merge(); break;
      }
    }
    for (const auto& [id, hides] : top().hides) {
      frame_.known.insert(id);
      if (hides) frame_.hidden->push_back(id);
    }
  }

 private:
  // The names used in one branch of an `if`, or in the frame outside of all branches.
  struct Layer {
    std::unordered_map<int, bool> hides;  // for each name: whether it is undefined at the start
    std::unordered_set<int> stores;
  };

  Layer& top() { return layers_.back(); }
  bool is_outer(int id) const {
    const Frame* frame = frame_.parent;
    while (frame != nullptr && frame->known.count(id) == 0) frame = frame->parent;
    return frame != nullptr;
  }
  bool has(int id) const {
    return std::any_of(layers_.begin(), layers_.end(), [&](const Layer& layer) { return layer.hides.count(id) > 0; });
  }
  bool stores(int id) const {
    return std::any_of(layers_.begin(), layers_.end(), [&](const Layer& layer) { return layer.stores.count(id) > 0; });
  }

  // A name that a branch assigns keeps its outer value in the other branches, so it is not hidden.
  void merge() {
    std::vector<Layer> branches = std::move(finished_.back());
    branches.push_back(std::move(top()));
    finished_.pop_back();
    layers_.pop_back();
    std::unordered_set<int> stored;
    for (const Layer& branch : branches) {
      for (const auto& [id, hides] : branch.hides) top().hides[id] = hides;
      stored.insert(branch.stores.begin(), branch.stores.end());
    }
    for (int id : stored) {
      if (!stores(id)) top().hides[id] = false;
    }
    top().stores.merge(stored);
  }

  Frame& frame_;
  std::vector<Layer> layers_;                 // the frame, then the open branches
  std::vector<std::vector<Layer>> finished_;  // for each open `if`, its finished branches
};

// A frame must come after the frames around it.
inline void resolve_frames(std::deque<Frame>& frames) {
  for (Frame& frame : frames) FrameResolver(frame).run();
}

}  // namespace ingot::jinja
