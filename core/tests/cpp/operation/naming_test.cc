// Names of operations to which the user gave no name.
#include "engine/operations.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/requests.h"

namespace farandole {
namespace {

// Names an operation that is entered. Returns the one in flight that has its name.
OperationPtr Name(Naming* naming, const OperationPtr& operation) {
  Naming::Reservation reserved = naming->Name(operation.get());
  OperationPtr before = reserved.before();
  reserved.Commit(operation);
  return before;
}

// Ranks are not equally far: one has to wait for a name that another finds free, and both must mean the same operation.
TEST(NamingTest, ANameIsThatOfItsSequenceNumberWhateverIsInFlight) {
  constexpr size_t kPoolSize = 64, kCalls = 3 * kPoolSize;
  Naming waiting, idle;
  std::vector<float> values(3);
  const auto make = [&] { return std::make_shared<Operation>(Make(OpKind::kAllreduce, {TensorOf(values, &values)})); };
  std::vector<OperationPtr> in_flight;
  for (size_t sequence_number = 0; sequence_number < kCalls; ++sequence_number) {
    const OperationPtr done = make();
    EXPECT_EQ(Name(&idle, done), nullptr);
    done->CompleteAlone(Status::Ok(), true);
    in_flight.push_back(make());
    const OperationPtr before = Name(&waiting, in_flight.back());
    EXPECT_EQ(before, sequence_number < kPoolSize ? nullptr : in_flight[sequence_number - kPoolSize]);
    EXPECT_EQ(in_flight.back()->name(), done->name());
    EXPECT_EQ(in_flight.back()->sequence_number(), static_cast<int64_t>(sequence_number));
  }
}

TEST(NamingTest, ACallTakesANumberOnlyOnceItIsEntered) {
  Naming naming;
  std::vector<float> values(3);
  const Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)});
  const int64_t shape = 3;
  TensorView tensor;
  tensor.shape = {&shape, 1};
  RequestView view;
  view.tensors = {&tensor, 1};
  EXPECT_FALSE(naming.Reserve(view)) << "no rank can know the name of the first operation";
  const OperationPtr first = std::make_shared<Operation>(request);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(naming.Name(first.get()).sequence_number(), 0) << "it is refused";
  EXPECT_EQ(Name(&naming, first), nullptr);
  std::vector<int64_t> numbers;
  std::string called;
  const OperationPtr goes_on = std::make_shared<Operation>(request);
  for (const bool enters : {false, true, false, true}) {
    Naming::Reservation reservation = naming.Reserve(view);
    ASSERT_TRUE(reservation);
    called = reservation.name();
    numbers.push_back(reservation.sequence_number());
    if (enters) reservation.Commit(goes_on);
  }
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, 1, 2, 2}));
  OperationPtr next;
  for (int number = 3; number < 66; ++number) Name(&naming, next = std::make_shared<Operation>(request));
  EXPECT_NE(next->name(), called);
  EXPECT_FALSE(naming.Reserve(view)) << "the call that has this name goes on";
  next = std::make_shared<Operation>(request);
  EXPECT_EQ(Name(&naming, next), goes_on);
  EXPECT_EQ(next->name(), called);
}

// Names of small operations have memory for their data, and all of it is to stay in a cache.
TEST(NamingTest, LargerSmallOperationsHaveFewerNames) {
  const std::pair<size_t, size_t> elements_names[] = {
      {1, 64}, {1 << 10, 64}, {8 << 10, 32}, {16 << 10, 16}, {17 << 10, 64}};
  for (const auto& [elements, count] : elements_names) {
    Naming naming;
    std::vector<float> values(elements);
    std::set<std::string> names;
    for (int i = 0; i < 200; ++i) {
      const auto operation = std::make_shared<Operation>(Make(OpKind::kAllreduce, {TensorOf(values, &values)}));
      Name(&naming, operation);
      names.emplace(operation->name());
      operation->CompleteAlone(Status::Ok(), true);
    }
    EXPECT_EQ(names.size(), count) << elements;
  }
}

OperationPtr Named(Naming* naming, const Request& request, bool awaited) {
  const auto operation = std::make_shared<Operation>(request);
  operation->awaited = awaited;
  EXPECT_EQ(Name(naming, operation), nullptr);
  operation->CompleteAlone(Status::Ok(), true);
  return operation;
}

TEST(NamingTest, AwaitedOperationsHaveOneNameUntilOneIsNot) {
  Naming naming;
  std::vector<float> values(256 << 10), larger(values.size() + 1);
  const Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)});
  const std::string name(Named(&naming, request, true)->name());
  for (int i = 0; i < 3; ++i) {
    const OperationPtr next = Named(&naming, request, true);
    EXPECT_EQ(next->name(), name);
    EXPECT_TRUE(next->awaited);
  }
  EXPECT_NE(Named(&naming, request, false)->name(), name);
  const OperationPtr next = Named(&naming, request, true);
  EXPECT_NE(next->name(), name);
  EXPECT_FALSE(next->awaited) << "it shares its name with others";
  const Request has_no_slots = Make(OpKind::kAllreduce, {TensorOf(larger, &larger)});
  EXPECT_NE(Named(&naming, has_no_slots, true)->name(), Named(&naming, has_no_slots, true)->name());
}

TEST(NamingTest, AFullPoolHasAllNames) {
  Naming naming;
  std::vector<float> values(3);
  const Request request = Make(OpKind::kAllreduce, {TensorOf(values, &values)});
  naming.UseFullPool(SignatureOf(request));  // of a signature that is not known
  const std::string name(Named(&naming, request, true)->name());
  naming.UseFullPool(SignatureOf(request));
  EXPECT_NE(Named(&naming, request, true)->name(), name);
}

// A plugin may keep an operation that could not be submitted.
TEST(NamingTest, WhatWasAbandonedHasNoName) {
  Naming naming;
  std::vector<float> values(3);
  std::vector<OperationPtr> kept;
  for (int i = 0; i < 65; ++i) {
    kept.push_back(std::make_shared<Operation>(Make(OpKind::kAllreduce, {TensorOf(values, &values)})));
    EXPECT_EQ(Name(&naming, kept.back()), nullptr);
    kept.back()->CompleteAlone(Invalid("no"), false);
  }
}

}  // namespace
}  // namespace farandole
