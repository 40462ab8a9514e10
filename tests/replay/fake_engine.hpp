// An engine whose answers, loads and saves end when a test says so.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kvstream/engine.hpp"

namespace kvstream::test {

class FakeTicket final : public StepTicket {
 public:
  bool done() const override { return done_; }
  bool request_ready(std::size_t) const override { return done_; }
  bool wait_until(Nanos) const override { return done_; }
  const StepResult& result() const override {
    EXPECT_TRUE(done_) << "a result was read before its time";
    return result_;
  }
  bool drained() const override { return drained_; }

  bool done_ = false, drained_ = false;
  StepResult result_;
  std::vector<std::vector<BlockKey>> keys_;  ///< by request
  std::vector<Span> into_;                   ///< all destinations
};

class FakeSave final : public SaveTicketState {
 public:
  SaveCounts counts() const override { return {}; }
  bool wait_staged(Nanos) const override { return staged_; }
  bool wait_done(Nanos) const override { return done_; }
  bool published(std::size_t) const override { return done_; }

  bool staged_ = false, done_ = false;
  std::vector<BlockKey> keys_;
  std::vector<ConstSpan> from_;
};

/// Holds what `stored` names. Leases and accounts are those of DESIGN section 9; one thread.
class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(const Clock& clock) : clock_(clock) {}

  Status register_buffer(Span) override { return Status::ok(); }
  std::vector<LookupAnswer> lookup(std::span<const LookupRequest> requests) override {
    std::vector<LookupAnswer> answers;
    for (const auto& request : requests) {
      ++lookups;
      LookupAnswer answer;
      answer.pending = pending;
      while (!pending && answer.blocks < request.keys.size() &&
             stored.count(request.keys[answer.blocks]) != 0) {
        ++answer.blocks;
      }
      if (answer.blocks > 0) {
        answer.lease.words[0] = ++last_lease_;
        leases[last_lease_] = answer.blocks;
        looked_up += answer.blocks;
      }
      answers.push_back(answer);
    }
    return answers;
  }
  void release(LeaseToken lease) override { never_loaded += take(lease); }
  Result<Ticket> load_step(const StepRequest& request) override {
    if (refuses_loads) return failure(Code::kOverloaded, "load_step: full");
    auto ticket = std::make_shared<FakeTicket>();
    ticket->result_.submitted_at = clock_.now();
    for (const auto& load : request.requests) {
      const std::uint64_t leased = take(load.lease), asked = load.blocks.size();
      looked_up += asked > leased ? asked - leased : 0;
      never_loaded += leased > asked ? leased - asked : 0;
      requested += asked;
      auto& keys = ticket->keys_.emplace_back();
      for (const auto& block : load.blocks) {
        keys.push_back(block.key);
        ticket->into_.insert(ticket->into_.end(), block.into.begin(), block.into.end());
      }
      auto& result = ticket->result_.requests.emplace_back();
      result.blocks.resize(asked);
    }
    loads.push_back(ticket);
    return Ticket(ticket);
  }
  Status cancel(const Ticket& ticket, Nanos) override {
    ++cancels;
    for (auto& load : loads) {
      if (load.get() != ticket.get() || load->done_ || cancel_takes_time) continue;
      end(*load, [](std::size_t, std::size_t) { return BlockState::kCancelled; });
    }
    if (ticket->done()) return Status::ok();
    return {Code::kTimedOut, "cancel: blocks are still being placed"};
  }
  std::vector<Span> held(const Ticket&) const override { return {}; }
  SaveTicket save_step(const SaveRequest& request) override {
    auto save = std::make_shared<FakeSave>();
    for (const auto& block : request.blocks) {
      save->keys_.push_back(block.key);
      save->from_.insert(save->from_.end(), block.from.begin(), block.from.end());
    }
    save->staged_ = save->done_ = saves_at_once;
    saves.push_back(save);
    return save;
  }
  int event_fd() const override { return -1; }
  void touch(std::span<const BlockKey>) override {}
  Status set_mode(const Mode&) override { return Status::ok(); }
  std::vector<ContentEntry> contents() const override { return {}; }
  void drop(std::span<const BlockKey>, std::uint64_t) override {}
  Status refresh(Nanos) override { return Status::ok(); }
  EngineStats stats() const override { return {}; }
  std::vector<StepRecord> take_step_records() override { return {}; }
  CloseReport close(Nanos) override { return {}; }

  /// The load ends now; block (request, position) as `state` says. Drained unless a block is late.
  template <class State>
  void end(FakeTicket& load, State state) {
    bool late = false;
    for (std::size_t r = 0; r < load.result_.requests.size(); ++r) {
      auto& request = load.result_.requests[r];
      bool whole = true;
      for (std::size_t b = 0; b < request.blocks.size(); ++b) {
        request.blocks[b].state = state(r, b);
        whole = whole && request.blocks[b].state == BlockState::kHit;
        late = late || request.blocks[b].state == BlockState::kLate;
        if (whole) request.usable_blocks = static_cast<std::uint32_t>(b + 1);
      }
      request.ready_at = clock_.now();
    }
    load.result_.ended_at = clock_.now();
    load.done_ = true;
    load.drained_ = !late;
  }
  void bring(std::size_t index) {
    end(*loads.at(index), [](std::size_t, std::size_t) { return BlockState::kHit; });
  }
  void lose(std::size_t index, std::size_t from_block = 0) {
    end(*loads.at(index), [from_block](std::size_t, std::size_t block) {
      return block < from_block ? BlockState::kHit : BlockState::kMiss;
    });
  }
  void settle(std::size_t index) { saves.at(index)->staged_ = saves.at(index)->done_ = true; }
  /// Whether anything was still open.
  bool end_all() {
    bool any = false;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      any = any || !loads[i]->done_;
      if (!loads[i]->done_) bring(i);
      loads[i]->drained_ = true;
    }
    for (std::size_t i = 0; i < saves.size(); ++i) {
      any = any || !saves[i]->done_;
      settle(i);
    }
    return any;
  }

  std::set<BlockKey> stored;
  bool pending = false, refuses_loads = false, cancel_takes_time = false, saves_at_once = false;
  std::vector<std::shared_ptr<FakeTicket>> loads;
  std::vector<std::shared_ptr<FakeSave>> saves;
  std::map<std::uint64_t, std::uint64_t> leases;  ///< blocks of each that lives
  std::uint64_t looked_up = 0, requested = 0, never_loaded = 0, lookups = 0, cancels = 0;

 private:
  std::uint64_t take(LeaseToken lease) {
    const auto at = leases.find(lease.words[0]);
    if (at == leases.end()) return 0;
    const std::uint64_t blocks = at->second;
    leases.erase(at);
    return blocks;
  }

  const Clock& clock_;
  std::uint64_t last_lease_ = 0;
};

}  // namespace kvstream::test
