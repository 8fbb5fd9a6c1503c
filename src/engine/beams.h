// The sequences of a search with beams (Request::beams). Each beam is a sequence. The request's own sequence, the
// leader, computes the prompt. Then further sequences share its blocks. A step samples no token for a beam, but the
// beam's candidates. When the candidates of all beams are known, BeamSearch chooses the next beams. A sequence goes on
// with the first beam that continues it. For the others, sequences whose beams have ended are forked from it
// (Scheduler::fork).
#pragma once
#include <memory>
#include <vector>

#include "backend/beam_search.h"
#include "engine/sequence.h"

namespace ingot {

struct BeamGroup {
  BeamSearch search;
  std::vector<Sequence*> all;      // the leader first
  std::vector<Sequence*> running;  // the sequences of the search's beams, in their order
  std::vector<Sequence*> idle;     // the others; the scheduler has them paused
  bool is_over = false;            // the consumers have been notified

  Sequence* leader() const { return all.front(); }
};

// Also makes the request sample candidates. The sequence is the leader.
std::shared_ptr<BeamGroup> make_beams(Sequence& leader, Request& request);

}  // namespace ingot
