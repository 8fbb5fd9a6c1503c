// The settings, stored in this browser (localStorage). An empty text means the model's default. `presets` is a list of
// {name, system, temperature, ...}.
const KEY = 'ingot.settings';

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}

export const settings = {
  values: {key: '', system: '', theme: 'auto', temperature: '', top_p: '', top_k: '', min_p: '', max_tokens: '', seed: '',
           repetition_penalty: '', model: '', tools: '', thinking: '', presets: [], ...read()},
  set(name, value) {
    this.values[name] = value;
    try {
      localStorage.setItem(KEY, JSON.stringify(this.values));
    } catch { /* the store is full or refused: the settings last for this page */ }
  },
};
