from cpp_scan import code_only, functions


def spans(text: str) -> list[tuple[str, int]]:
    return [(function.name, function.line_count) for function in functions(text)]


def test_a_function_reaches_from_its_header_to_its_brace() -> None:
    assert spans("int One() {\n  return 1;\n}\n\nint\nTwo(int a,\n    int b) {\n}\n") == [("One", 3), ("Two", 4)]


def test_declarations_and_data_are_no_functions() -> None:
    assert (
        spans("int F(int);\nint a[] = {1, 2};\nstd::map<int, int> b{{1, 2}};\nenum class E : int { kA = 1 };\n") == []
    )


def test_methods_in_nested_scopes_are_found() -> None:
    text = """
namespace a::b {
template <typename T, typename = std::enable_if_t<(sizeof(T) > 1)>>
class alignas(64) C : public D<int> {
 public:
  C() : x_{1}, y_(2) {
    y_ = 3;
  }
  bool operator()(int a) const noexcept { return a; }
  int x() const { return x_; }

 private:
  struct Inner {
    void G() override {
      if (true) { H(); }
    }
  };
  int x_ = 0;
  std::byte* z_{};
};
}  // namespace a::b
extern "C" {
int Free(void) {
}
}
"""
    assert spans(text) == [("C", 3), ("operator()", 1), ("x", 1), ("G", 3), ("Free", 2)]


def test_a_lambda_belongs_to_its_function() -> None:
    assert spans("void F() {\n  auto g = [](int a) {\n    return a;\n  };\n  for (;;) {\n  }\n}\n") == [("F", 7)]


def test_braces_in_text_are_not_braces() -> None:
    text = r"""void F() {
  // }
  /* } */ auto a = "}\"}";
  auto b = '}';
  auto c = R"x(}"})x";
  int d = 1'000'000;
}
"""
    assert spans(text) == [("F", 7)]


def test_macros_are_not_code() -> None:
    assert spans("#define A(x) \\\n  do { \\\n    x;\nvoid F() {\n}\n") == [("F", 2)]


def test_tests_are_named_by_suite_and_case() -> None:
    assert spans("TEST(Half, Rounds) {\n}\nTEST_P(Link, Moves) {\n}\n") == [("Half.Rounds", 2), ("Link.Moves", 2)]


def test_lines_stay_where_they_are() -> None:
    text = "int a;  // x\n/* y\n z */ int b;\n#define C \\\n  1\nint d;\n"
    assert [line.strip() for line in code_only(text).split("\n")] == ["int a;", "", "int b;", "", "", "int d;", ""]
