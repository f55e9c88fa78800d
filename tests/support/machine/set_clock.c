/* Preloaded: adds the seconds in the file of CLOCK_SET_FILE to what the wall clock says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) {
    long by_s = 0;
    FILE *file = fopen(getenv("CLOCK_SET_FILE"), "r");
    if (file) {
      if (fscanf(file, "%ld", &by_s) != 1) by_s = 0;
      fclose(file);
    }
    time->tv_sec += by_s;
  }
  return result;
}
