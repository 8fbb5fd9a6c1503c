// The browser's database (IndexedDB) of conversations: one record for each conversation. Every function returns a
// promise, which is rejected if the browser refuses.
const NAME = 'ingot', STORE = 'conversations', VERSION = 1;
let opening = null;

const settled = request => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function open() {
  opening ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, {keyPath: 'id'});
    request.onblocked = () => reject(new Error('an older tab of this page holds the database'));
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close();
      request.result.onclose = () => opening = null;
      resolve(request.result);
    };
  });
  opening.catch(() => opening = null);  // the next call tries again
  return opening;
}

// Runs work(store) in one transaction, and resolves when the transaction is complete.
async function change(work) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, 'readwrite');
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error('the browser gave no reason'));
    try {
      work(transaction.objectStore(STORE));
      transaction.commit();  // at once, for a page that is being left
    } catch (error) {
      transaction.abort();
      reject(error);
    }
  });
}

const read = async work => settled(work((await open()).transaction(STORE).objectStore(STORE)));

export const readAll = () => read(store => store.getAll());
export const readOne = id => read(store => store.get(id));
export const write = records => change(store => records.forEach(record => store.put(record)));
export const remove = ids => change(store => ids.forEach(id => store.delete(id)));
