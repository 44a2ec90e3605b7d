// Records which functions call which in one thread, for call_paths.py. A rank preloads it, and its core is compiled with
// -finstrument-functions: then each function calls __cyg_profile_func_enter and __cyg_profile_func_exit. Calls of Python
// functions are reported with the same two functions by call_paths_worker.py.
//
// The record is a tree. A node is a function together with the calls that led to it, and remains one node however often
// it runs, so the size of a record does not depend on how often a rank polls.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct Node {
  const void* function;
  int parent;
  int first_child, next_sibling;  // 0: none
};

enum { kMostNodes = 1 << 18, kOff = -1 };

static struct Node g_nodes[kMostNodes];  // the first one is the root; parents come before their children
static int g_count;
static __thread int t_current = kOff;  // of the one thread that records

static int Add(int parent, const void* function) {
  if (g_count == kMostNodes) {
    fputs("call_recorder: there are too many different stacks to record\n", stderr);
    abort();
  }
  const struct Node node = {function, parent, 0, g_nodes[parent].first_child};
  g_nodes[parent].first_child = g_count;
  g_nodes[g_count] = node;
  return g_count++;
}

void __cyg_profile_func_enter(void* function, void* call_site) {
  (void)call_site;
  if (t_current == kOff) return;
  int child = g_nodes[t_current].first_child;
  while (child != 0 && g_nodes[child].function != function) child = g_nodes[child].next_sibling;
  t_current = child != 0 ? child : Add(t_current, function);
}

void __cyg_profile_func_exit(void* function, void* call_site) {
  (void)function, (void)call_site;
  if (t_current > 0) t_current = g_nodes[t_current].parent;
}

// Starts an empty record of the calling thread.
void call_recorder_start(void) {
  g_nodes[0] = (struct Node){NULL, 0, 0, 0};
  g_count = 1;
  t_current = 0;
}

// Returns the nodes, which the next start overwrites.
const struct Node* call_recorder_stop(int* count) {
  t_current = kOff;
  *count = g_count;
  return g_nodes;
}
