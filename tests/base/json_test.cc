// JSON values are destroyed without an allocation, whatever their shape and depth.
#include "base/json.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <new>

#include "test_seed.h"

namespace {

thread_local bool is_allocation_refused = false;
thread_local long n_live_allocations = 0;

}  // namespace

void* operator new(std::size_t n) {
  void* memory = is_allocation_refused ? nullptr : std::malloc(n);
  if (memory == nullptr) throw std::bad_alloc();
  ++n_live_allocations;
  return memory;
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  void* memory = is_allocation_refused ? nullptr : std::malloc(n);
  n_live_allocations += memory != nullptr;
  return memory;
}
void operator delete(void* memory) noexcept {
  n_live_allocations -= memory != nullptr;
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace ingot {
namespace {

template <class Json>
class JsonDestructor : public testing::Test {};
using BothJsons = testing::Types<nlohmann::json, nlohmann::ordered_json>;
TYPED_TEST_SUITE(JsonDestructor, BothJsons);

template <class Json>
Json drawn_json(std::mt19937& rng, int depth) {
  const auto n = [&] { return static_cast<int>(rng() % 5); };
  switch (rng() % (depth > 0 ? 8 : 5)) {
    case 0: return nullptr;
    case 1: return 1.5;
    case 2: return std::string(rng() % 40, 'x');
    case 3: return Json::binary({1, 2, 3});
    case 4: return rng() % 2 == 0 ? Json::array() : Json::object();
    case 5: {
      Json array = Json::array();
      for (int i = n(); i > 0; --i) array.push_back(drawn_json<Json>(rng, depth - 1));
      return array;
    }
    default: {
      Json object = Json::object();
      for (int i = n(); i > 0; --i) object["a key that takes memory " + std::to_string(i)] = drawn_json<Json>(rng, depth - 1);
      return object;
    }
  }
}

// Destroys the value where no memory is left. A failure would end the process.
template <class Json>
void destroy_without_memory(Json& value) {
  is_allocation_refused = true;
  value = nullptr;
  is_allocation_refused = false;
}

TYPED_TEST(JsonDestructor, AllocatesNothing) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int i = 0; i < 3000; ++i) {
    const long before = n_live_allocations;
    {
      TypeParam value = drawn_json<TypeParam>(rng, 8);
      destroy_without_memory(value);
    }
    ASSERT_EQ(n_live_allocations, before) << "some memory was not freed";
  }
}

// Comparisons with literals may not throw, so they must not allocate.
TYPED_TEST(JsonDestructor, ComparisonsAllocateNothing) {
  const TypeParam text = "a text that is too long for a short string", number = 5;
  const char* same = "a text that is too long for a short string";
  is_allocation_refused = true;
  const bool right[] = {text == same, same == text, !(text != same), !(same != text), text != "another", number != same,
                        "5" != number, number == 5};
  is_allocation_refused = false;
  EXPECT_THAT(right, testing::Each(true));
}

TYPED_TEST(JsonDestructor, IsNotRecursive) {
  const long before = n_live_allocations;
  {
    TypeParam value;
    for (int i = 0; i < 1'000'000; ++i) {
      TypeParam outer = i % 2 == 0 ? TypeParam::array() : TypeParam::object();
      i % 2 == 0 ? outer.push_back(std::move(value)) : void(outer["a"] = std::move(value));
      value = std::move(outer);
    }
    destroy_without_memory(value);
  }
  EXPECT_EQ(n_live_allocations, before);
}

}  // namespace
}  // namespace ingot
