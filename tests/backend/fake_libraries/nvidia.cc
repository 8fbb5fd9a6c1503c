// A library of NVIDIA that is in no folder of the system.
extern "C" int fake_nvidia() { return 42; }
