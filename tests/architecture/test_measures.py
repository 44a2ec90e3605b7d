import re

from conftest import Plant
from cpp_scan import class_functions
from measures import GOALS, LEAST_COMMENTS, WORST, circles, comments, figures, report, worse
from tree import cpp_sources


def test_no_figure_of_the_core_gets_worse() -> None:
    assert worse(figures(cpp_sources()), comments(cpp_sources())) == []


def test_the_report_has_every_figure() -> None:
    assert WORST.keys() == GOALS.keys() == figures([]).keys()
    rows = re.findall(r"^ +(\S.*?)  +[\d.]+ ", report(), re.MULTILINE)
    assert sorted(rows) == sorted([*WORST, *LEAST_COMMENTS, "."])


def test_every_folder_has_a_share_of_comments() -> None:
    assert LEAST_COMMENTS.keys() == comments(cpp_sources()).keys() - {"."}


def test_no_goal_is_looser_than_its_bound() -> None:
    assert [what for what, most in WORST.items() if GOALS[what] > most] == []


# ---- The figures are right -------------------------------------------------------------------------------------------


def test_a_figure_that_is_worse_is_found() -> None:
    better = {what: most - 1 for what, most in WORST.items()}
    enough = {folder: (1, float(least)) for folder, least in LEAST_COMMENTS.items()}
    assert worse(better, enough) == []
    assert worse({**better, "files": WORST["files"] + 1}, enough) == [
        f"files: {WORST['files'] + 1:g}, it was {WORST['files']:g}"
    ]
    least = LEAST_COMMENTS["world"]
    assert worse(better, {**enough, "world": (1, least - 0.1)}) == [
        f"comments in world: {least - 0.1:.1f} %, they were {least} %"
    ]


def test_files_and_functions_are_counted(plant: Plant) -> None:
    files = plant(
        {
            "core/src/a/small.cc": "void F() {\n  g();\n}\n" + "\n" * 56,
            "core/src/a/large.cc": "\n" * 501,
            "core/src/a/neither.cc": "\n" * 60,
            "core/tests/b.cc": "\n",
        }
    )
    assert list(figures(files).values()) == [3, 33.3, 1, 3, 0, 0]


def test_a_circle_of_folders_is_found(plant: Plant) -> None:
    files = plant(
        {
            "core/src/a/a.h": '#include "b/b.h"\n#include "a/other.h"\n',
            "core/src/b/b.cc": '#include "b/c/c.h"\n',
            "core/src/b/c/c.h": '#include "a/a.h"\n',
            "core/src/d/d.h": '#include "a/a.h"\n// #include "d/e/e.h"\n',
        }
    )
    assert circles(files) == {"core/src/a", "core/src/b", "core/src/b/c"}


def test_member_functions_are_counted() -> None:
    text = """
    template <typename T>
    class A final : public B<T> {
     public:
      explicit A(int a) : a_{a}, b_(a) {}
      virtual ~A() override;
      A(const A&) = delete;
      int get() const { return a_; }
      static void Set(int a, std::function<void(int)> f = nullptr);
      bool operator==(const A& other) const;
      template <class U, class V = X<U>>
      void Apply(U u) {
        if (u) f(u);
      }
      struct Inner {
        int x = f();
        void G();
      };
     private:
      const std::function<void(int)> done_;
      int a_{1};
      // void Comment();
      int b_ = f();
      using F = void (*)(int);
      friend void Foo(int);
    };
    struct A::Other {
      void H();
    };
    enum class E { kOne };
    """
    assert class_functions(text) == {"A": 4, "Inner": 1, "A::Other": 1}


def test_comments_are_lines_without_code(plant: Plant) -> None:
    files = plant({"core/src/a/b/c.cc": "// One.\n\nint x;  // code\n/* Two.\n */\n", "core/src/capi.cc": "int y;\n"})
    assert comments(files) == {".": (1, 0.0), "a": (1, 75.0)}
