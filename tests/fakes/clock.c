/* Moves the time of the day of the program that it is loaded into by OFFSET seconds (LD_PRELOAD). Clocks that only
 * measure how much time has passed stay as they are, as they do where the clock of a machine is set wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result;
    if (!real)
        begin();
    result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += OFFSET;
    return result;
}
