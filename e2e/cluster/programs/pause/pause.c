/* pause holds a pod's namespaces open: the first process of every sandbox. It reaps what is left to it and ends on request. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

static void end(int signal) {
  (void)signal;
  _exit(0);
}

int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
