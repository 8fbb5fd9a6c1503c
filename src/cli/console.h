// The terminal, and the signals that end a program; console_posix.cc and console_windows.cc have the bodies.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace ingot {

enum class Stream { kInput, kOutput, kErrors };
bool is_terminal(Stream stream);

// Called first in main. If a page of a mapped file cannot be read any longer, the program then ends with
// `lost_page_text` and `lost_page_code`.
void prepare_program(const char* lost_page_text, int lost_page_code);

// The keys that end the input: "Ctrl-D".
const char* keys_of_the_end();

// Ctrl-C: returns the handler so far. A call that waits for input ends when the handler has run.
using InterruptHandler = void (*)(int);
InterruptHandler set_interrupt_handler(InterruptHandler handler);

// From here on, signals that end the program or that a supervisor sends (SIGTERM, SIGINT, SIGHUP, SIGUSR1) wait for
// next_signal, in this thread and in threads that start later. Writes to closed connections report an error only.
void hold_signals();
// The next signal that was held; 0 if none comes within the time.
int next_signal(std::chrono::milliseconds timeout);

}  // namespace ingot
