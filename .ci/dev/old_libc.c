/* Symbols that this system's headers and static libraries ask for, and that glibc 2.28 lacks or has by another name. */
#include <sys/types.h>

struct stat;

#ifdef __x86_64__
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif

int __xstat(int version, const char* path, struct stat* found);
int __lxstat(int version, const char* path, struct stat* found);
int __fxstat(int version, int descriptor, struct stat* found);

int stat(const char* path, struct stat* found) { return __xstat(kStatVersion, path, found); }
int lstat(const char* path, struct stat* found) { return __lxstat(kStatVersion, path, found); }
int fstat(int descriptor, struct stat* found) { return __fxstat(kStatVersion, descriptor, found); }

/* Atomics are never left out: a process with Python or a framework has threads. */
char __libc_single_threaded = 0;
