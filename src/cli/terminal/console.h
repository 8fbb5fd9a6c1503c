// The terminal and the signals that end a program. Implemented in console_posix.cc and console_windows.cc.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace ingot {

enum class Stream { kInput, kOutput, kErrors };
bool is_terminal(Stream stream);
int terminal_columns(Stream stream);  // now; 0 if the stream is no terminal

// Call first in main. If a page of a mapped file later becomes unreadable, the program prints `lost_page_text` and
// exits with `lost_page_code`.
void prepare_program(const char* lost_page_text, int lost_page_code);

// The key that ends the input: "Ctrl-D".
const char* keys_of_the_end();

// Sets the handler of Ctrl-C and returns the previous handler. After the handler, a blocked read of input returns.
using InterruptHandler = void (*)(int);
InterruptHandler set_interrupt_handler(InterruptHandler handler);

// Blocks SIGTERM, SIGINT, SIGHUP and SIGUSR1 in this thread and in threads started later; next_signal returns them.
// Writes to closed connections then only return an error.
void hold_signals();
// The next blocked signal; 0 if no signal arrives within the timeout.
int next_signal(std::chrono::milliseconds timeout);

}  // namespace ingot
