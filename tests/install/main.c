/* Opens a model with an installed ingot and prints its size. */
#include <ingot/ingot.h>
#include <stdio.h>

int main(int argc, char** argv) {
  ingot_model_options options;
  ingot_model* model = NULL;
  ingot_model_options_init(&options);
  options.n_threads = 1;
  options.n_ctx = 64;
  if (argc != 2 || ingot_load(argv[1], &options, &model) != INGOT_OK) {
    fprintf(stderr, "%s\n", ingot_last_error());
    return 1;
  }
  printf("%s: %d words, context %d\n", ingot_version(), ingot_n_vocab(model), ingot_n_ctx(model));
  return ingot_free(model) == INGOT_OK ? 0 : 1;
}
