// Asks the user a question in a <dialog>: yes or no, or a text to enter.
import {make} from '/dom.js';

// Resolves to the entered text (true without `input`), or null if the user cancels.
export function ask(question, {input, type = 'text', ok = 'OK', danger = false} = {}) {
  return new Promise(resolve => {
    const field = input === undefined ? null : make('input', {type, value: input, 'aria-label': question, autocomplete: 'off'});
    const cancel = make('button', {type: 'button', onclick: () => dialog.close()}, 'Cancel');
    const submit = event => {
      event.preventDefault();
      resolve(field ? field.value : true);
      dialog.close();
    };
    const form = make('form', {onsubmit: submit}, make('p', {}, question), ...(field ? [field] : []),
      make('div', {class: 'row'}, cancel, make('button', {class: danger ? 'danger' : 'main'}, ok)));
    const dialog = make('dialog', {class: 'ask', 'aria-label': question, onclose: () => {
      dialog.remove();
      resolve(null);
    }}, form);
    document.body.append(dialog);
    dialog.showModal();
    field?.select();
  });
}
