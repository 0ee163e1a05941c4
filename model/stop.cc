#include <csignal>

#include "model/trainer.h"

namespace strata {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void OnSignal(int /*signal*/) { stop_requested = 1; }

}  // namespace

void InstallStopHandlers() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // a second one ends the program at once
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away does not end the training
}

bool StopRequested() { return stop_requested != 0; }

void ClearStop() { stop_requested = 0; }

}  // namespace strata
