#include <vector>

#include "catalog/eviction_order.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kNone = ~0U;

/// A doubly linked list over an array that is indexed by entry.
class LruOrder final : public EvictionOrder {
 public:
  void on_publish(std::uint32_t entry, std::uint64_t tick) override {
    if (entry >= links_.size()) links_.resize(entry + 1);
    append(entry, tick);
  }
  void on_use(std::uint32_t entry, std::uint64_t tick) override {
    unlink(entry);
    append(entry, tick);
  }
  void on_retract(std::uint32_t entry) override { unlink(entry); }
  std::optional<std::uint32_t> first() const override { return known(oldest_); }
  std::optional<std::uint32_t> after(std::uint32_t entry) const override {
    return known(links_[entry].younger);
  }
  std::uint64_t rank(std::uint32_t entry) const override { return links_[entry].tick; }

 private:
  struct Link {
    std::uint32_t older = kNone, younger = kNone;
    std::uint64_t tick = 0;
  };
  static std::optional<std::uint32_t> known(std::uint32_t entry) {
    return entry == kNone ? std::nullopt : std::optional(entry);
  }
  void append(std::uint32_t entry, std::uint64_t tick) {
    links_[entry] = {youngest_, kNone, tick};
    (youngest_ == kNone ? oldest_ : links_[youngest_].younger) = entry;
    youngest_ = entry;
  }
  void unlink(std::uint32_t entry) {
    const Link link = links_[entry];
    (link.older == kNone ? oldest_ : links_[link.older].younger) = link.younger;
    (link.younger == kNone ? youngest_ : links_[link.younger].older) = link.older;
  }

  std::vector<Link> links_;
  std::uint32_t oldest_ = kNone, youngest_ = kNone;
};

}  // namespace

std::unique_ptr<EvictionOrder> make_lru_order() { return std::make_unique<LruOrder>(); }

}  // namespace kvstream
