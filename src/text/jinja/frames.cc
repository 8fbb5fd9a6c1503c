#include "text/jinja/frames.h"

#include <unordered_map>
#include <unordered_set>

namespace ingot::jinja {
namespace {

// The names used in one branch of an `if`, or in the frame outside of all branches.
struct Layer {
  std::unordered_map<int, bool> hides;  // for each name: whether it is undefined at the start
  std::unordered_set<int> stores;
};

class FrameResolver {
 public:
  explicit FrameResolver(Frame& frame) : frame_(frame) { layers_.emplace_back(); }

  void run() {
    for (const auto& [event, id] : frame_.events) {
      switch (event) {
        case Frame::Event::kLoad:
          if (!outer(id) && !has(id)) top().hides[id] = false;
          break;
        case Frame::Event::kStore:
          if (!has(id)) top().hides[id] = !outer(id);
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
        case Frame::Event::kNextBranch:
          finished_.back().push_back(std::move(top()));
          top() = Layer();
          break;
        case Frame::Event::kEndIf: merge(); break;
      }
    }
    for (const auto& [id, hides] : top().hides) {
      frame_.known.insert(id);
      if (hides) frame_.hidden->push_back(id);
    }
  }

 private:
  Layer& top() { return layers_.back(); }
  bool outer(int id) const {
    const Frame* frame = frame_.parent;
    while (frame != nullptr && frame->known.count(id) == 0) frame = frame->parent;
    return frame != nullptr;
  }
  bool has(int id) const {
    for (const Layer& layer : layers_) {
      if (layer.hides.count(id) > 0) return true;
    }
    return false;
  }

  // A name that a branch assigns keeps its outer value in the other branches, so it is not hidden.
  void merge() {
    std::vector<Layer> branches = std::move(finished_.back());
    branches.push_back(std::move(top()));
    finished_.pop_back();
    layers_.pop_back();
    auto stored_before = [&](int id) {
      for (const Layer& layer : layers_) {
        if (layer.stores.count(id) > 0) return true;
      }
      return false;
    };
    for (Layer& branch : branches) {
      for (const auto& [id, hides] : branch.hides) top().hides[id] = hides;
    }
    for (Layer& branch : branches) {
      for (int id : branch.stores) {
        if (!stored_before(id)) top().hides[id] = false;
      }
    }
    for (Layer& branch : branches) top().stores.insert(branch.stores.begin(), branch.stores.end());
  }

  Frame& frame_;
  std::vector<Layer> layers_;                 // the frame, then the open branches
  std::vector<std::vector<Layer>> finished_;  // for each open `if`, its finished branches
};

}  // namespace

void resolve_frames(std::deque<Frame>& frames) {
  for (Frame& frame : frames) FrameResolver(frame).run();
}

}  // namespace ingot::jinja
