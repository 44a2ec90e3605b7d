/* Comes before every file of a portable build (portable.py): libstdc++'s headers were set up for this system's glibc,
 * and must do without its functions that glibc 2.28 lacks. */
#ifdef __cplusplus
#include <bits/c++config.h>
/* Waits until a time of the steady clock then go through pthread_cond_timedwait, which looks again at that clock. */
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
#endif
