// Which MPI library is taken, what its binary interface is, and how others are refused. Uses a fake library
// (support/fake_mpi.h); tests/mpi_ranks has real ones.
#include "backends/mpi/library.h"

#include <gtest/gtest.h>

#include "backends/mpi/communicator.h"
#include "backends/table.h"
#include "support/fake_mpi.h"
#include "support/reductions.h"

namespace farandole {
namespace {

using testing::TestParamInfo;

struct Kind {
  const char* name;
  MpiAbi abi;
  const char* version;
};

class MpiLibraryTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    fake_.version = GetParam().version;
    fake_.abi_version = -1;
    fake_.rank = 0;
    fake_.size = 1;
    fake_.level = kMpiThreadMultiple;
    fake_.initialized = true;
    fake_.finalized = false;
    fake_.failing.clear();
  }

  const MpiLibrary& Open() {
    const MpiLibrary* library = nullptr;
    const Status opened = OpenMpiLibrary({FakeMpiPath(GetParam().name), "", ""}, &library);
    EXPECT_TRUE(opened.ok()) << opened.message();
    return *library;
  }

  // The settings of a user who has chosen this library.
  static Settings Chosen() {
    Settings settings;
    settings.libraries["mpi"] = FakeMpiPath(GetParam().name);
    return settings;
  }

  FakeMpi& fake_ = OpenFakeMpi(GetParam().name);
};

constexpr Kind kKinds[] = {{"mpich", MpiAbi::kMpich, "MPICH Version:      5.0.2\nMPICH Release date: today"},
                           {"openmpi", MpiAbi::kOpenMpi, "Open MPI v5.0.11, package: somebody's, ident: 5.0.11"}};

INSTANTIATE_TEST_SUITE_P(Interfaces, MpiLibraryTest, testing::ValuesIn(kKinds),
                         [](const TestParamInfo<Kind>& kind) { return kind.param.name; });

void ExpectSays(const Status& status, Code code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string& word : words)
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
}

TEST_P(MpiLibraryTest, TheBinaryInterfaceIsFoundByWhatTheLibraryHas) {
  EXPECT_EQ(Open().abi, GetParam().abi);
  EXPECT_EQ(Open().path, FakeMpiPath(GetParam().name));
}

TEST_P(MpiLibraryTest, TheVersionIsShortened) {
  const std::string expected = GetParam().abi == MpiAbi::kOpenMpi ? "Open MPI v5.0.11" : "MPICH Version: 5.0.2";
  EXPECT_EQ(Open().version, expected);
}

// The fake refuses handles of another interface.
TEST_P(MpiLibraryTest, AllCollectivesGoThroughWithTheHandlesOfTheInterface) {
  const MpiLibrary& library = Open();
  for (const size_t most : {MpiCommunicator::kMaxBytes, size_t{8}}) {
    MpiCommunicator communicator(library, most);
    ASSERT_TRUE(communicator.Make(0, {0}, 0).ok());
    for (int type = 0; type < kDTypeCount; ++type) {
      const auto dtype = static_cast<DType>(type);
      if (!MpiKnows(dtype)) continue;
      for (const ReduceOp reduce : tests::ElementwiseReductions(dtype)) {
        const std::vector<char> input(10 * SizeOf(dtype), 1);
        std::vector<char> output(input.size()), part(input.size());
        EXPECT_TRUE(communicator.Allreduce(dtype, reduce, input.data(), output.data(), 10).ok());
        EXPECT_TRUE(communicator.Reducescatter(dtype, reduce, input.data(), part.data(), {part.size()}).ok());
        EXPECT_EQ(output, input);
        EXPECT_EQ(part, input);
      }
    }
    std::vector<char> input(100, 1), gathered(100), exchanged(100);
    EXPECT_TRUE(communicator.Broadcast(0, input.data(), 100).ok());
    EXPECT_TRUE(communicator.Allgather(input.data(), gathered.data(), {100}).ok());
    EXPECT_TRUE(communicator.Alltoall(input.data(), {100}, exchanged.data(), {100}).ok());
    EXPECT_EQ(gathered, input);
    EXPECT_EQ(exchanged, input);
  }
}

TEST_P(MpiLibraryTest, AnErrorOfTheLibraryNamesTheCallAndWhatTheLibrarySays) {
  const MpiLibrary& library = Open();
  MpiCommunicator communicator(library);
  ASSERT_TRUE(communicator.Make(0, {0}, 0).ok());
  fake_.failing = "MPI_Allreduce";
  float value = 1;
  const Status status = communicator.Allreduce(DType::kFloat32, ReduceOp::kSum, &value, &value, 1);
  ExpectSays(status, Code::kInternal, {"MPI_Allreduce failed", "the fake was told to fail", "15", library.version});
}

TEST_P(MpiLibraryTest, CommunicatorsAreGivenBack) {
  const MpiLibrary& library = Open();
  const int before = fake_.communicators;
  {
    MpiCommunicator never_made(library), first(library), second(library);
    EXPECT_TRUE(first.Make(0, {0}, 0).ok());
    EXPECT_TRUE(second.Make(1, {0}, 0).ok());
    EXPECT_EQ(fake_.communicators, before + 2);
  }
  EXPECT_EQ(fake_.communicators, before);
}

TEST_P(MpiLibraryTest, TwoRanksOfOneNumberAreRefused) {
  MpiCommunicator communicator(Open());
  ExpectSays(communicator.Make(0, {0, 2, 1, 2}, 0), Code::kInvalid, {"two ranks of this job are rank 2 in MPI"});
}

TEST_P(MpiLibraryTest, AWorldOfFewerRanksIsRefusedWithBothSizes) {
  const MpiLibrary& library = Open();
  fake_.size = 3;
  fake_.rank = 1;
  int rank = -1;
  EXPECT_TRUE(FindRankInMpi(library, 3, &rank).ok());
  EXPECT_EQ(rank, 1);
  EXPECT_TRUE(FindRankInMpi(library, 2, &rank).ok());  // some of MPI's ranks take part
  ExpectSays(FindRankInMpi(library, 4, &rank), Code::kInvalid, {"has 3 ranks, but this job has 4", "one mpirun"});
}

TEST_P(MpiLibraryTest, ARankThatIsAloneInMpiIsToldThatTheLauncherIsAnothers) {
  const MpiLibrary& library = Open();
  int rank = -1;
  ExpectSays(FindRankInMpi(library, 4, &rank), Code::kInvalid,
             {"of 4 ranks this one is alone in MPI", library.path, "mpirun", "FARANDOLE_MPI_LIB"});
}

TEST_P(MpiLibraryTest, RanksTellEachOtherBytesBeforeThereIsAWorld) {
  std::vector<std::string> all;
  const int before = fake_.communicators;
  const Status told = kMpi.exchange(Chosen(), 0, 1, std::string("a\0b", 3), &all);
  ASSERT_TRUE(told.ok()) << told.message();
  EXPECT_EQ(all, std::vector<std::string>({std::string("a\0b", 3)}));
  EXPECT_EQ(fake_.communicators, before);
}

TEST_P(MpiLibraryTest, ARankThatIsAnotherInMpiIsRefusedBeforeItTellsAnything) {
  std::vector<std::string> all;
  fake_.rank = 2;
  fake_.size = 3;
  ExpectSays(kMpi.exchange(Chosen(), 1, 3, "mine", &all), Code::kInvalid,
             {"rank 1 by its launcher's variables, but rank 2 in MPI", "start all ranks with one mpirun"});
  EXPECT_TRUE(all.empty());
}

TEST_P(MpiLibraryTest, ALibraryWithoutThreadsIsRefused) {
  const MpiLibrary& library = Open();
  fake_.level -= 1;
  ExpectSays(StartMpi(library, ""), Code::kInvalid,
             {"the program has initialized MPI without MPI_THREAD_MULTIPLE", "MPI_Init_thread", library.path});
}

TEST_P(MpiLibraryTest, MpiThatTheProgramHasInitializedIsUsed) { EXPECT_TRUE(StartMpi(Open(), "").ok()); }

TEST_P(MpiLibraryTest, ALibraryThatOpenMpisLauncherDoesNotKnowIsNotBegun) {
  const MpiLibrary& library = Open();
  fake_.initialized = false;
  const Status started = StartMpi(library, "openmpi");
  if (GetParam().abi == MpiAbi::kOpenMpi) {
    EXPECT_TRUE(started.ok()) << started.message();
  } else {
    ExpectSays(started, Code::kInvalid, {"Open MPI's mpirun started this process", library.Title()});
    EXPECT_FALSE(fake_.initialized);
  }
}

TEST_P(MpiLibraryTest, MpiThatTheProgramHasFinalizedIsRefused) {
  const MpiLibrary& library = Open();
  fake_.finalized = true;
  ExpectSays(StartMpi(library, ""), Code::kInvalid, {"has called MPI_Finalize", "init"});
}

TEST_P(MpiLibraryTest, OfTheLibrariesThatAreLoadedTheOneInUseIsTaken) {
  for (const Kind& kind : kKinds) OpenFakeMpi(kind.name).initialized = kind.abi == GetParam().abi;
  const MpiLibrary* library = nullptr;
  const Status opened = OpenMpiLibrary({"", "", "/nowhere"}, &library);
  ASSERT_TRUE(opened.ok()) << opened.message();
  EXPECT_EQ(library, &Open());
}

TEST(MpiLibraryChoice, APathWithNothingThereIsNamed) {
  const MpiLibrary* library = nullptr;
  ExpectSays(OpenMpiLibrary({"/nowhere/libmpi.so.40", "", ""}, &library), Code::kInvalid,
             {"FARANDOLE_MPI_LIB=/nowhere/libmpi.so.40", "No such file"});
}

TEST(MpiLibraryChoice, ALibraryThatIsNoMpiIsNamedWithWhatItLacks) {
  const std::string path = FakeMpiPath("mpich");
  const std::string other = path.substr(0, path.rfind('/')) + "/libfake_nvtx.so";
  const MpiLibrary* library = nullptr;
  ExpectSays(OpenMpiLibrary({other, "", ""}, &library), Code::kInvalid,
             {other, "has no function MPI_", "it is no MPI library"});
}

TEST(MpiLibraryChoice, AnMpiOfAnUnknownInterfaceIsNamedWithWhatItSaysOfItself) {
  OpenFakeMpi("unknown").version = "Somebody's MPI 1.0";
  const MpiLibrary* library = nullptr;
  ExpectSays(OpenMpiLibrary({FakeMpiPath("unknown"), "", ""}, &library), Code::kInvalid,
             {FakeMpiPath("unknown"), "Somebody's MPI 1.0", "unknown"});
}

TEST(MpiLibraryChoice, TheStandardInterfaceIsRefusedWithTheNamesOfTheOthers) {
  FakeMpi& fake = OpenFakeMpi("unknown");
  fake.version = "MPICH Version:      5.0.2";
  fake.abi_version = 1;
  const MpiLibrary* library = nullptr;
  ExpectSays(OpenMpiLibrary({FakeMpiPath("unknown"), "", ""}, &library), Code::kInvalid,
             {FakeMpiPath("unknown"), "standard interface", "libmpi.so.12"});
  fake.abi_version = -1;
}

TEST(MpiLibraryChoice, WithoutAnyTheNamesAndPlacesThatWereTriedAreSaid) {
  const MpiLibrary* library = nullptr;
  const Status opened = OpenMpiLibrary({"", "", "/nowhere"}, &library);
  if (opened.ok()) GTEST_SKIP() << "this machine, or a test before this one, has " << library->path;
  ExpectSays(opened, Code::kInvalid, {"libmpi.so.12, libmpich.so.12, libmpi.so.40", "/nowhere", "pip"});
}

TEST(MpiLibraryChoice, TheLibraryOfTheLauncherIsLookedForFirst) {
  EXPECT_EQ(MpiLibraryNames("openmpi").front(), "libmpi.so.40");
  EXPECT_EQ(MpiLibraryNames("mpich").front(), "libmpi.so.12");
  EXPECT_EQ(MpiLibraryNames("").back(), "libmpi.so.40");
}

}  // namespace
}  // namespace farandole
